#include "io/path.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace ecphory {

bool PathExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(
      std::filesystem::symlink_status(path, ignored));
}

bool IsDirectory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool HasExtension(const std::string& path, std::string_view extension) {
  const std::string found = std::filesystem::path(path).extension().string();
  const auto same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
  };
  return std::equal(found.begin(), found.end(), extension.begin(),
                    extension.end(), same);
}

}  // namespace ecphory
