#include "io/output_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "ecphory/output_path.h"
#include "io/errno_status.h"
#include "io/file_internal.h"
#include "io/gguf_part_name.h"
#include "io/path.h"

namespace ecphory {

namespace {

namespace fs = std::filesystem;

bool IsModelFile(const std::string& path) {
  return HasExtension(path, ".json") || HasExtension(path, ".safetensors") ||
         HasExtension(path, ".gguf") || HasExtension(path, ".npy");
}

}  // namespace

bool IsOtherPart(const std::string& output, const std::string& input) {
  const GgufPartName a = ParseGgufPartName(output);
  const GgufPartName b = ParseGgufPartName(input);
  std::error_code none;
  if (b.count == 0 || !fs::exists(output, none)) return false;
  if (a.count == b.count && SameFile(a.stem, b.stem)) return true;
  for (uint64_t number = 1; number <= b.count; ++number) {
    const std::string part = b.stem + GgufPartEnding(number, b.count);
    if (!fs::exists(part, none)) return false;  // such a model does not open
    if (fs::equivalent(output, part, none)) return true;
  }
  return false;
}

bool IsPartOf(const std::string& output, const std::string& directory) {
  std::error_code error;
  if (!fs::exists(output, error)) return false;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code none;
    const std::string& path = entry->path().native();
    if (IsModelFile(path) && fs::equivalent(output, path, none)) return true;
  }
  return false;
}

bool SameFile(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  const fs::path one = fs::weakly_canonical(fs::absolute(a, error), error);
  if (error) return false;
  const fs::path two = fs::weakly_canonical(fs::absolute(b, error), error);
  return !error && one == two;
}

Status CheckReplaceable(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
  return InvalidArgument(
      "%s: exists and is not a regular file; give another output path",
      path.c_str());
}

Status CheckOutputPath(const std::string& output,
                       std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    if (!SameFile(output, input) && !IsPartOf(output, input) &&
        !IsOtherPart(output, input)) {
      continue;
    }
    return InvalidArgument("%s: is also read (%s), expected another output",
                           output.c_str(), input.c_str());
  }
  ECPHORY_RETURN_IF_ERROR(CheckReplaceable(output));
  const std::string directory = DirectoryOf(output) + "/.";
  // As the effective user, who is the one that writes.
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0) {
    return {};
  }
  return FileError(errno, output, "create");
}

}  // namespace ecphory
