#include "io/io_mode.h"

#include "base/quote.h"

namespace ecphory {

namespace {
constexpr IoMode kModes[] = {IoMode::kAuto,     IoMode::kUring, IoMode::kPread,
                             IoMode::kBuffered, IoMode::kMmap,  IoMode::kRam};
}  // namespace

const char* IoModeName(IoMode mode) {
  switch (mode) {
    case IoMode::kAuto: return "auto";
    case IoMode::kUring: return "uring";
    case IoMode::kPread: return "pread";
    case IoMode::kBuffered: return "buffered";
    case IoMode::kMmap: return "mmap";
    case IoMode::kRam: return "ram";
  }
  return "unknown";
}

Result<IoMode> ParseIoMode(const std::string& name) {
  for (const IoMode mode : kModes) {
    if (name == IoModeName(mode)) return mode;
  }
  return InvalidArgument(
      "I/O mode %s: expected auto, uring, pread, buffered, mmap or ram",
      Quoted(name).c_str());
}

}  // namespace ecphory
