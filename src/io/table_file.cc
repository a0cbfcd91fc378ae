#include "io/table_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/checked_math.h"
#include "io/errno_status.h"

namespace ecphory {

namespace {

// Devices with larger sectors are not known; memory pages are no larger either.
constexpr uint32_t kMaxAlignment = 4096;

bool SameInode(int a, int b) {
  struct stat first, second;
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// A second descriptor of the open file `fd`, with its own flags. /proc reopens
// the inode itself; where it is not mounted the path must still lead to it.
// Invalid, with errno: EINVAL for refused flags, ENOENT for a replaced file.
UniqueFd Reopen(int fd, const std::string& path, int flags) {
  flags |= O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  UniqueFd opened(::open(link.c_str(), flags));
  if (opened.valid() || errno == EMFILE || errno == ENFILE || errno == EINVAL) {
    return opened;
  }
  opened = UniqueFd(::open(path.c_str(), flags));
  if (opened.valid() && !SameInode(fd, opened.get())) {
    opened.Reset();
    errno = ENOENT;
  }
  return opened;
}

bool OutOfDescriptors(int error) { return error == EMFILE || error == ENFILE; }

Status DescriptorLimit(int error, const std::string& path) {
  return FileError(error, path, "open a second descriptor (raise 'ulimit -n')");
}

bool IsAlignment(uint64_t n) {
  return n >= 512 && n <= kMaxAlignment && (n & (n - 1)) == 0;
}

// What the kernel says (Linux 6.1, not every file system); 0: nothing.
uint32_t StatedAlignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info;
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0) return 0;
  if ((info.stx_mask & STATX_DIOALIGN) == 0) return 0;
  const uint32_t align =
      std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
  // Fewer than 512 bytes (NVMe memory) is fine with us: sectors are larger.
  if (info.stx_dio_offset_align >= 512 && IsAlignment(align)) return align;
#else
  (void)fd;
#endif
  return 0;
}

// The smallest that a read accepts; 0 with errno when even a page is refused.
uint32_t ProbeAlignment(int fd) {
  const std::unique_ptr<void, void (*)(void*)> memory(
      std::aligned_alloc(kMaxAlignment, 2 * kMaxAlignment), std::free);
  if (memory == nullptr) {
    errno = ENOMEM;
    return 0;
  }
  for (const uint32_t align : {512u, kMaxAlignment}) {
    // Offset, length and address: all multiples of `align` and of no more.
    uint8_t* buffer = static_cast<uint8_t*>(memory.get()) + align;
    const ssize_t got = ::pread(fd, buffer, align, static_cast<off_t>(align));
    if (got >= 0) return align;
    if (errno != EINVAL) return 0;
  }
  errno = EINVAL;
  return 0;
}

}  // namespace

Result<std::shared_ptr<const TableFile>> TableFile::Open(
    std::shared_ptr<RandomAccessFile> file) {
  std::shared_ptr<TableFile> table(new TableFile());
  table->file_ = std::move(file);
  if (table->file_->descriptor() < 0) {
    table->refusal_ = "the file lies in memory";
  } else {
    ECPHORY_RETURN_IF_ERROR(table->OpenDescriptors());
  }
  return std::shared_ptr<const TableFile>(std::move(table));
}

Status TableFile::OpenDescriptors() {
  const int fd = file_->descriptor();
  file_system_ = FileSystemOf(fd);
  buffered_ = Reopen(fd, path(), 0);
  if (!buffered_.valid() && OutOfDescriptors(errno)) {
    return DescriptorLimit(errno, path());
  }
  if (!buffered_.valid()) {
    // Shares flags and read-ahead state with `file_`, which is good enough.
    buffered_ = UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!buffered_.valid()) return DescriptorLimit(errno, path());
  }
  // Rows are scattered: reading ahead would fetch what nobody asked for.
  ::posix_fadvise(buffered_.get(), 0, 0, POSIX_FADV_RANDOM);
  return OpenDirect();
}

Status TableFile::OpenDirect() {
  // tmpfs accepts the flag since Linux 6.6 and then copies as ever.
  if (file_system_.memory) {
    refusal_ = file_system_.name + " keeps files in memory";
    return Status::Ok();
  }
  UniqueFd fd = Reopen(file_->descriptor(), path(), O_DIRECT);
  if (!fd.valid()) {
    if (OutOfDescriptors(errno)) return DescriptorLimit(errno, path());
    Refuse(errno);
    return Status::Ok();
  }
  alignment_ = StatedAlignment(fd.get());
  if (alignment_ == 0) alignment_ = ProbeAlignment(fd.get());
  if (alignment_ == 0) {
    Refuse(errno);
    alignment_ = 1;
    return Status::Ok();
  }
  direct_ = std::move(fd);
  return Status::Ok();
}

void TableFile::Refuse(int error) {
  refusal_ = file_system_.name + " refuses O_DIRECT: " + std::strerror(error);
}

// One read of whole sectors; false when it does not give all of `out`.
bool TableFile::ReadAt(int fd, uint64_t offset, std::span<uint8_t> out) const {
  const uint64_t begin = offset / kMaxAlignment * kMaxAlignment;
  const uint64_t lead = offset - begin;
  uint64_t needed, bytes;
  if (!CheckedAdd(lead, out.size(), &needed) ||
      !CheckedAlignUp(needed, kMaxAlignment, &bytes)) {
    return false;
  }
  const std::unique_ptr<uint8_t, void (*)(void*)> memory(
      static_cast<uint8_t*>(std::aligned_alloc(kMaxAlignment, bytes)),
      std::free);
  if (memory == nullptr) return false;
  const ssize_t got =
      ::pread(fd, memory.get(), bytes, static_cast<off_t>(begin));
  if (got < 0 || static_cast<uint64_t>(got) < needed) return false;
  std::copy_n(memory.get() + lead, out.size(), out.data());
  return true;
}

Status TableFile::ReadExact(uint64_t offset, std::span<uint8_t> out) const {
  for (const int fd : {direct(), buffered()}) {
    if (fd >= 0 && ReadAt(fd, offset, out)) return Status::Ok();
  }
  return file_->ReadExact(offset, out);
}

Status TableFile::CheckSize() const {
  if (!buffered_.valid()) return Status::Ok();
  struct stat info;
  if (::fstat(buffered_.get(), &info) != 0) {
    return FileError(errno, path(), "stat");
  }
  if (static_cast<uint64_t>(info.st_size) >= size()) return Status::Ok();
  return Corrupt("%s: cut to %llu bytes while in use, %llu expected",
                 path().c_str(), static_cast<unsigned long long>(info.st_size),
                 static_cast<unsigned long long>(size()));
}

}  // namespace ecphory
