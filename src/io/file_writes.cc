#include "io/file_writes.h"

#include <unistd.h>

#include <cerrno>

#include "io/errno_status.h"

namespace ecphory {

Status WriteAllAt(int fd, const std::string& path, uint64_t offset,
                  std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FileError(errno, path, "write");
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return {};
}

Status AppendAll(int fd, const std::string& path,
                 std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FileError(errno, path, "write");
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return {};
}

}  // namespace ecphory
