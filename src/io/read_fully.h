// The loop around pread that turns "some bytes" into "all of them".
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/errno_status.h"

namespace ecphory {

// Linux transfers at most 0x7ffff000 bytes in one call.
inline constexpr size_t kMaxReadBytes = size_t{1} << 30;

// Fills `out` from `offset` with calls read_some(bytes, count, offset), which
// behave as pread(2) does: a short count is continued, EINTR is retried, and a
// count of 0 means that the file ends early (kCorrupt). `path` is for errors.
template <typename ReadSome>
Status ReadFully(const std::string& path, uint64_t offset,
                 std::span<uint8_t> out, const ReadSome& read_some) {
  while (!out.empty()) {
    const ssize_t got =
        read_some(out.data(), std::min(out.size(), kMaxReadBytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, path, "read");
    if (got == 0) {
      return Corrupt("%s: ends at byte %llu, %zu more bytes expected",
                     path.c_str(), static_cast<unsigned long long>(offset),
                     out.size());
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return Status::Ok();
}

}  // namespace ecphory
