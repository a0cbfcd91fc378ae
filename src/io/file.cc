#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "io/errno_status.h"
#include "io/file_internal.h"
#include "io/read_fully.h"

namespace ecphory {

Result<OpenedFile> OpenRegularFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  OpenedFile file;
  file.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd.valid()) return FileError(errno, path, "open");
  struct stat info;
  if (::fstat(file.fd.get(), &info) != 0) return FileError(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("%s: not a regular file", path.c_str());
  }
  file.size = static_cast<uint64_t>(info.st_size);
  return file;
}

Status CheckRange(const std::string& path, uint64_t size, uint64_t offset,
                  uint64_t count) {
  uint64_t end = 0;
  if (CheckedAdd(offset, count, &end) && end <= size) return Status::Ok();
  return Corrupt(
      "%s: %llu bytes at offset %llu reach past the end (%llu bytes)",
      path.c_str(), static_cast<unsigned long long>(count),
      static_cast<unsigned long long>(offset),
      static_cast<unsigned long long>(size));
}

std::string DirectoryOf(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? std::string(".") : parent.string();
}

namespace {

class PosixFile : public RandomAccessFile {
 public:
  PosixFile(std::string path, OpenedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}

  const std::string& path() const override { return path_; }
  uint64_t size() const override { return file_.size; }
  int descriptor() const override { return file_.fd.get(); }

  Status ReadExact(uint64_t offset, std::span<uint8_t> out) const override {
    ECPHORY_RETURN_IF_ERROR(CheckRange(path_, file_.size, offset, out.size()));
    return ReadFully(
        path_, offset, out, [this](uint8_t* bytes, size_t count, uint64_t at) {
          return ::pread(file_.fd.get(), bytes, count, static_cast<off_t>(at));
        });
  }

 private:
  const std::string path_;
  const OpenedFile file_;
};

class MemoryFile : public RandomAccessFile {
 public:
  MemoryFile(std::string name, std::span<const uint8_t> bytes)
      : name_(std::move(name)), bytes_(bytes.begin(), bytes.end()) {}

  const std::string& path() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }

  Status ReadExact(uint64_t offset, std::span<uint8_t> out) const override {
    ECPHORY_RETURN_IF_ERROR(CheckRange(name_, size(), offset, out.size()));
    const auto from = std::span(bytes_).subspan(offset, out.size());
    std::copy(from.begin(), from.end(), out.begin());
    return Status::Ok();
  }

 private:
  const std::string name_;
  const std::vector<uint8_t> bytes_;
};

}  // namespace

Result<std::shared_ptr<RandomAccessFile>> OpenFile(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(OpenedFile file, OpenRegularFile(path));
  return std::shared_ptr<RandomAccessFile>(
      std::make_shared<PosixFile>(path, std::move(file)));
}

std::shared_ptr<RandomAccessFile> MakeMemoryFile(
    std::string name, std::span<const uint8_t> bytes) {
  return std::make_shared<MemoryFile>(std::move(name), bytes);
}

Result<uint64_t> FreeDiskBytes(const std::string& path) {
  struct statvfs info;
  if (::statvfs(path.c_str(), &info) != 0) {
    const std::string directory = DirectoryOf(path);
    if (::statvfs(directory.c_str(), &info) != 0) {
      return FileError(errno, directory, "query free disk space");
    }
  }
  uint64_t bytes = 0;
  if (!CheckedMul(info.f_bavail, info.f_frsize, &bytes)) return UINT64_MAX;
  return bytes;
}

Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  ECPHORY_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  if (file->size() > max_bytes) {
    return Unsupported("%s: %llu bytes, more than the limit of %llu",
                       path.c_str(),
                       static_cast<unsigned long long>(file->size()),
                       static_cast<unsigned long long>(max_bytes));
  }
  std::string text(static_cast<size_t>(file->size()), '\0');
  ECPHORY_RETURN_IF_ERROR(file->ReadExact(
      0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

}  // namespace ecphory
