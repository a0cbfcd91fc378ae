#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "ecphory/partial_files.h"
#include "io/errno_status.h"
#include "io/file.h"
#include "io/file_internal.h"
#include "io/file_writes.h"
#include "io/output_path.h"
#include "io/unique_fd.h"

namespace ecphory {

namespace {

// Many small appends become few large system calls.
constexpr size_t kBufferBytes = size_t{1} << 20;

// A name in the same directory that no other writer of this process uses.
std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  std::string name = path;
  name += ".partial-";
  name += std::to_string(::getpid());
  name += '-';
  name += std::to_string(counter.fetch_add(1));
  return name;
}

}  // namespace

Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = DirectoryOf(path);
  const UniqueFd fd(
      ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, directory, "open");
  // Some file systems cannot sync a directory and say so with EINVAL.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return FileError(errno, directory, "sync");
  }
  return Status::Ok();
}

Result<std::unique_ptr<AtomicFileWriter>> AtomicFileWriter::Create(
    const std::string& path) {
  ECPHORY_RETURN_IF_ERROR(CheckReplaceable(path));
  std::unique_ptr<AtomicFileWriter> writer(new AtomicFileWriter());
  writer->path_ = path;
  // A leftover of a killed process with our pid may hold a name: take the next.
  do {
    writer->temporary_ = TemporaryName(path);
    writer->fd_ = MakePartialFile(writer->temporary_, [](const char* name) {
      return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
  } while (writer->fd_ < 0 && errno == EEXIST);
  if (writer->fd_ < 0) return FileError(errno, path, "create");
  writer->buffer_.reserve(kBufferBytes);
  return writer;
}

AtomicFileWriter::~AtomicFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
  ForgetPartialFile(temporary_);
}

Status AtomicFileWriter::Write(std::span<const uint8_t> bytes) {
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    ECPHORY_RETURN_IF_ERROR(Flush());
  }
  if (bytes.size() >= kBufferBytes) return AppendAll(fd_, path_, bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return Status::Ok();
}

Status AtomicFileWriter::WriteZeros(uint64_t count) {
  static constexpr uint8_t kZeros[4096] = {};
  while (count > 0) {
    const size_t piece =
        static_cast<size_t>(std::min<uint64_t>(count, sizeof(kZeros)));
    ECPHORY_RETURN_IF_ERROR(Write({kZeros, piece}));
    count -= piece;
  }
  return Status::Ok();
}

Status AtomicFileWriter::Flush() {
  ECPHORY_RETURN_IF_ERROR(AppendAll(fd_, path_, buffer_));
  buffer_.clear();
  return Status::Ok();
}

Status AtomicFileWriter::Commit() {
  ECPHORY_RETURN_IF_ERROR(Flush());
  if (::fsync(fd_) != 0) return FileError(errno, path_, "sync");
  if (FinishPartialFile(temporary_, [this](const char* name) {
        return ::rename(name, path_.c_str());
      }) != 0) {
    return FileError(errno, path_, "rename the finished file to this name");
  }
  ::close(fd_);
  fd_ = -1;  // committed: nothing left for the destructor to remove
  return SyncDirectoryOf(path_);
}

}  // namespace ecphory
