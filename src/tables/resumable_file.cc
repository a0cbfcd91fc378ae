#include "tables/resumable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

#include "io/disk_room.h"
#include "io/errno_status.h"
#include "io/file.h"
#include "io/file_internal.h"
#include "io/file_writes.h"
#include "io/output_path.h"
#include "io/path.h"
#include "tables/digest.h"

namespace ecphory::tables {

namespace {

namespace fs = std::filesystem;
constexpr char kVerified[] = "verified";

// Bytes of the file that are on the disk already.
uint64_t AllocatedBytes(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

bool IsEmpty(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && info.st_size == 0;
}

Status CheckTarget(const std::string& path, bool overwrite) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(path, ignored);
  if (!fs::exists(status)) return {};
  if (!fs::is_regular_file(status)) {
    return InvalidArgument(
        "%s: exists and is not a regular file; give another output path",
        path.c_str());
  }
  if (overwrite) return {};
  return InvalidArgument(
      "%s: exists; remove it, give another output path, or --overwrite",
      path.c_str());
}

}  // namespace

Status CheckNoInput(const std::string& output,
                    std::span<const std::string> inputs) {
  // Beside the files of a directory a GGUF file is an earlier output.
  const bool gguf = HasExtension(output, ".gguf");
  for (const std::string& input : inputs) {
    for (const std::string& name : {output, output + ".partial"}) {
      std::error_code missing;
      if (!fs::equivalent(name, input, missing) && !IsOtherPart(name, input) &&
          (gguf || !IsPartOf(name, input))) {
        continue;
      }
      return InvalidArgument("%s: is an input (%s); give another output path",
                             name.c_str(), input.c_str());
    }
  }
  return {};
}

Result<std::unique_ptr<ResumableFile>> ResumableFile::Open(
    const std::string& path, const Options& options) {
  std::unique_ptr<ResumableFile> file(new ResumableFile());
  file->path_ = path;
  file->partial_ = path + ".partial";
  file->journal_path_ = file->partial_ + ".journal";
  file->overwrite_ = options.overwrite;
  if (PathExists(path) && !PathExists(file->partial_) &&
      PathExists(file->journal_path_)) {
    // Killed between the last two steps, if this is our journal.
    auto journal = Journal::Open(file->journal_path_, options.signature);
    if (journal.ok() && !(*journal)->records().empty() &&
        (*journal)->records().back() == kVerified) {
      file->complete_ = file->verified_ = true;
      file->journal_ = std::move(journal).value();
      ECPHORY_RETURN_IF_ERROR(file->ReadRecords());
      return file;
    }
  }
  ECPHORY_RETURN_IF_ERROR(CheckTarget(path, options.overwrite));
  ECPHORY_RETURN_IF_ERROR(file->OpenPartial());
  const bool empty = IsEmpty(file->fd_.get());
  Status status = file->OpenJournal(options.signature, empty);
  if (status.ok()) status = file->CheckSpace(options.total_bytes);
  if (status.ok()) return file;
  if (empty) ::unlink(file->partial_.c_str());
  if (empty && file->journal_) ECPHORY_RETURN_IF_ERROR(file->Discard());
  return status;
}

Status ResumableFile::OpenPartial() {
  fd_ = UniqueFd(::open(partial_.c_str(),
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd_.valid()) return FileError(errno, partial_, "create");
  struct stat info;
  if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument("%s: is not a regular file", partial_.c_str());
  }
  // The kernel drops the lock with the process, however it ends.
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return FileError(errno, partial_, "lock");
  return InvalidArgument("%s: another process is writing it", partial_.c_str());
}

Status ResumableFile::OpenJournal(const std::string& signature, bool empty) {
  if (!PathExists(journal_path_)) {
    if (!empty) {
      return InvalidArgument(
          "%s: exists and has no journal, so it is not ours to go on with; "
          "remove it or give another output path",
          partial_.c_str());
    }
    ECPHORY_ASSIGN_OR_RETURN(journal_,
                             Journal::Create(journal_path_, signature));
    return SyncDirectoryOf(path_);
  }
  auto journal = Journal::Open(journal_path_, signature);
  // Begun and nothing written, or killed once the file had its name: what a
  // journal says of no file binds nobody, whatever job it was of.
  if (empty && (journal.ok() || Journal::IsOne(journal_path_))) {
    ECPHORY_ASSIGN_OR_RETURN(journal_,
                             Journal::Create(journal_path_, signature));
    return {};
  }
  if (!journal.ok()) {
    return InvalidArgument(
        "%s; remove it and %s to begin again, or give another output path",
        journal.status().message().c_str(), partial_.c_str());
  }
  journal_ = std::move(journal).value();
  return ReadRecords();
}

Status ResumableFile::ReadRecords() {
  for (const std::string& record : journal_->records()) {
    ECPHORY_RETURN_IF_ERROR(ReadRecord(record));
  }
  return {};
}

Status ResumableFile::ReadRecord(const std::string& record) {
  if (record == kVerified) {
    verified_ = true;
    return {};
  }
  size_t number = 0;
  const char* end = record.data() + record.size();
  const auto [at, error] = std::from_chars(record.data(), end, number);
  const auto digest = error == std::errc() && at != end
                          ? ParseHex(std::string_view(
                                at + 1, static_cast<size_t>(end - at) - 1))
                          : std::nullopt;
  if (!digest) {
    return Corrupt("%s: found record '%s', expected a chunk and its sum",
                   journal_path_.c_str(), record.c_str());
  }
  chunks_[number] = *digest;
  return {};
}

Status ResumableFile::CheckSpace(uint64_t total_bytes) const {
  const uint64_t there = AllocatedBytes(fd_.get());
  return CheckDiskRoom(path_, total_bytes > there ? total_bytes - there : 0);
}

Status ResumableFile::Write(uint64_t offset,
                            std::span<const uint8_t> bytes) const {
  return WriteAllAt(fd_.get(), partial_, offset, bytes);
}

Status ResumableFile::Record(const std::map<size_t, uint64_t>& chunks) {
  if (::fdatasync(fd_.get()) != 0) return FileError(errno, partial_, "sync");
  // What is on the disk need not push anything else out of the page cache.
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  for (const auto& [number, digest] : chunks) {
    ECPHORY_RETURN_IF_ERROR(
        journal_->Append(std::to_string(number) + " " + Hex(digest)));
    chunks_[number] = digest;
  }
  return {};
}

Status ResumableFile::SetSize(uint64_t bytes) const {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0) return {};
  return FileError(errno, partial_, "set the size of");
}

Status ResumableFile::RecordVerified() {
  verified_ = true;
  if (::fsync(fd_.get()) != 0) return FileError(errno, partial_, "sync");
  return journal_->Append(kVerified);
}

Status ResumableFile::Publish() {
  if (complete_) return journal_->Remove();
  const unsigned flags = overwrite_ ? 0 : RENAME_NOREPLACE;
  int renamed =
      ::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), flags);
  // Some file systems cannot refuse to replace; the name was free at the start.
  if (renamed != 0 && (errno == EINVAL || errno == ENOSYS)) {
    renamed = ::rename(partial_.c_str(), path_.c_str());
  }
  if (renamed != 0) {
    return FileError(errno, path_, "rename the finished file to this name");
  }
  ECPHORY_RETURN_IF_ERROR(SyncDirectoryOf(path_));
  ECPHORY_RETURN_IF_ERROR(journal_->Remove());
  return SyncDirectoryOf(path_);
}

Status ResumableFile::Discard() {
  ECPHORY_RETURN_IF_ERROR(journal_->Remove());
  if (::unlink(partial_.c_str()) == 0 || errno == ENOENT) return {};
  return FileError(errno, partial_, "remove");
}

}  // namespace ecphory::tables
