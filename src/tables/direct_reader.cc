#include "tables/direct_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/checked_math.h"
#include "io/errno_status.h"
#include "io/file_internal.h"

namespace ecphory::tables {

namespace {

// A multiple of every sector size in use.
constexpr size_t kAlignment = 4096;

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes)
    : size_((bytes + kAlignment - 1) / kAlignment * kAlignment) {
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, size_)));
  if (data_ == nullptr) throw std::bad_alloc();
}

void AlignedBuffer::Free::operator()(uint8_t* memory) const {
  std::free(memory);
}

Result<std::unique_ptr<DirectReader>> DirectReader::Open(
    const std::string& path) {
  std::unique_ptr<DirectReader> reader(new DirectReader());
  ECPHORY_ASSIGN_OR_RETURN(OpenedFile file, OpenRegularFile(path));
  reader->path_ = path;
  reader->size_ = file.size;
  reader->fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  reader->direct_ = reader->fd_.valid();
  if (!reader->direct_) reader->fd_ = std::move(file.fd);
  return reader;
}

size_t DirectReader::BufferBytes(size_t bytes) {
  return bytes + 2 * kAlignment;
}

Result<size_t> DirectReader::ReadSome(uint64_t begin, size_t wanted,
                                      size_t needed, uint8_t* out) const {
  size_t got = 0;
  while (got < needed) {
    const ssize_t n = ::pread(fd_.get(), out + got, wanted - got,
                              static_cast<off_t>(begin + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, path_, "read");
    if (n == 0) break;
    got += static_cast<size_t>(n);
    // A direct read goes on at whole sectors only; the end of the file is the
    // one place where it stops between them.
    if (direct_ && got % kAlignment != 0 && got < needed) break;
  }
  return got;
}

Result<std::span<const uint8_t>> DirectReader::Read(
    uint64_t offset, size_t bytes, const AlignedBuffer& buffer) const {
  ECPHORY_RETURN_IF_ERROR(CheckRange(path_, size_, offset, bytes));
  const uint64_t begin = offset / kAlignment * kAlignment;
  const size_t skip = static_cast<size_t>(offset - begin);
  const size_t needed = skip + bytes;
  const size_t wanted = (needed + kAlignment - 1) / kAlignment * kAlignment;
  ECPHORY_ASSIGN_OR_RETURN(const size_t got,
                           ReadSome(begin, wanted, needed, buffer.data()));
  if (got < needed) {
    return Corrupt("%s: ends at byte %llu, it had %llu bytes when opened",
                   path_.c_str(), static_cast<unsigned long long>(begin + got),
                   static_cast<unsigned long long>(size_));
  }
  if (!direct_) {
    ::posix_fadvise(fd_.get(), static_cast<off_t>(begin),
                    static_cast<off_t>(wanted), POSIX_FADV_DONTNEED);
  }
  return std::span<const uint8_t>(buffer.data() + skip, bytes);
}

}  // namespace ecphory::tables
