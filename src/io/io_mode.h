// The ways in: how bytes of a large file come into memory.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/status.h"

namespace ecphory {

enum class IoMode : uint8_t {
  kAuto,      // chosen by what the file system and the kernel allow
  kUring,     // io_uring, O_DIRECT: many reads in flight from one thread
  kPread,     // a standing pool of threads in pread, O_DIRECT where allowed
  kBuffered,  // through the page cache: hits at once, misses in flight together
  kMmap,      // a mapping; the page cache holds what was touched
  kRam,       // the whole file range copied to memory at open
};

// "auto", "uring", "pread", "buffered", "mmap", "ram".
const char* IoModeName(IoMode mode);
// kInvalidArgument lists the names.
Result<IoMode> ParseIoMode(const std::string& name);

}  // namespace ecphory
