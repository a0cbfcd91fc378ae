#include "file_text.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include "interrupt.h"

namespace ecphory::cli {

namespace {

// A FIFO or a terminal waits for its writer, and the wait ends with Ctrl-C.
Status Failure(int error, const std::string& path) {
  if (Interrupted()) return Cancelled("while reading %s", path.c_str());
  return ErrnoError(error, "%s", path.c_str());
}

}  // namespace

Result<std::string> ReadFileText(const std::string& path, size_t max_bytes) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"),
                                             std::fclose);
  if (file == nullptr && errno == ENOENT) {
    return NotFound("%s: no such file", path.c_str());
  }
  if (file == nullptr) return Failure(errno, path);
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    if (Interrupted()) return Cancelled("while reading %s", path.c_str());
    text.append(buffer, n);
    if (text.size() > max_bytes) {
      return OutOfRange("%s: more than %zu bytes", path.c_str(), max_bytes);
    }
  }
  if (std::ferror(file.get())) return Failure(errno, path);
  return text;
}

}  // namespace ecphory::cli
