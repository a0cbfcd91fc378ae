// XXH3-64 over bytes that come in pieces, and how sums are spelt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ecphory::tables {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(std::span<const uint8_t> bytes);
  uint64_t value() const;

  static uint64_t Of(std::span<const uint8_t> bytes);
  static uint64_t Of(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case digits, most significant first.
std::string Hex(uint64_t digest);
// Exactly what Hex gives; nothing for other texts.
std::optional<uint64_t> ParseHex(std::string_view text);

}  // namespace ecphory::tables
