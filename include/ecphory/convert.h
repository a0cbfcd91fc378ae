// Released-layout directory -> one GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

struct ConvertOptions {
  enum class Experts : uint8_t { kMxfp4, kQ8_0 };
  Experts experts = Experts::kMxfp4;  // exact for released FP4 experts
  // Bytes done and in all; returning false cancels and leaves nothing behind.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

// Writes architecture `deepseek41` with Engram tables copied byte for byte to
// the end of the file. To a temporary, fsync, rename.
ECPHORY_EXPORT Status Convert(const std::string& directory,
                              const std::string& output,
                              const ConvertOptions& options);

}  // namespace ecphory
