// Writes that go through or say why not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ecphory/status.h"

namespace ecphory {

inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// All of `bytes` at `offset`. A full disk is kResourceExhausted.
Status WriteAllAt(int fd, const std::string& path, uint64_t offset,
                  std::span<const uint8_t> bytes);
// All of `bytes` where `fd` stands.
Status AppendAll(int fd, const std::string& path,
                 std::span<const uint8_t> bytes);

}  // namespace ecphory
