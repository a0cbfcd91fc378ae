#include "io/atomic_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "ecphory/partial_files.h"
#include "io/errno_status.h"
#include "io/file_internal.h"

namespace ecphory {

namespace fs = std::filesystem;

namespace {

// "dir/" means "dir".
std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Status CheckAbsent(const std::string& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  if (fs::is_directory(path, error) && fs::is_empty(path, error)) return {};
  return InvalidArgument("%s: exists; give another output directory",
                         path.c_str());
}

}  // namespace

Result<std::unique_ptr<AtomicDirectory>> AtomicDirectory::Create(
    const std::string& path) {
  std::unique_ptr<AtomicDirectory> directory(new AtomicDirectory());
  directory->target_ = WithoutSlashes(path);
  ECPHORY_RETURN_IF_ERROR(CheckAbsent(directory->target_));
  const std::string stem =
      directory->target_ + ".partial-" + std::to_string(::getpid());
  for (int n = 0; directory->temporary_.empty(); ++n) {
    const std::string name = stem + "-" + std::to_string(n);
    if (MakePartialFile(
            name, [](const char* made) { return ::mkdir(made, 0777); }) == 0) {
      directory->temporary_ = name;
    } else if (errno != EEXIST) {
      return FileError(errno, directory->target_, "create");
    }
  }
  return directory;
}

AtomicDirectory::~AtomicDirectory() {
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  ForgetPartialFile(temporary_);
}

Status AtomicDirectory::Named(const Status& status) const {
  if (status.ok() || temporary_.empty()) return status;
  std::string message = status.message();
  for (size_t at = message.find(temporary_); at != std::string::npos;
       at = message.find(temporary_, at + target_.size())) {
    message.replace(at, temporary_.size(), target_);
  }
  return {status.code(), std::move(message)};
}

Status AtomicDirectory::Commit() {
  if (FinishPartialFile(temporary_, [this](const char* name) {
        return std::rename(name, target_.c_str());
      }) != 0) {
    return FileError(errno, target_,
                     "rename the finished directory to this name");
  }
  temporary_.clear();
  return SyncDirectoryOf(target_);
}

}  // namespace ecphory
