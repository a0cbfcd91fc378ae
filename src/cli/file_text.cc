#include "file_text.h"

#include <cerrno>
#include <cstdio>
#include <memory>

namespace ecphory::cli {

Result<std::string> ReadFileText(const std::string& path, size_t max_bytes) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"),
                                             std::fclose);
  if (file == nullptr && errno == ENOENT) {
    return NotFound("%s: no such file", path.c_str());
  }
  if (file == nullptr) return ErrnoError(errno, "%s", path.c_str());
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    text.append(buffer, n);
    if (text.size() > max_bytes) {
      return OutOfRange("%s: more than %zu bytes", path.c_str(), max_bytes);
    }
  }
  if (std::ferror(file.get())) return ErrnoError(errno, "%s", path.c_str());
  return text;
}

}  // namespace ecphory::cli
