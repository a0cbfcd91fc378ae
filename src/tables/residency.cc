#include "tables/residency.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "io/errno_status.h"
#include "io/file_internal.h"

namespace ecphory::tables {

namespace {

constexpr uint64_t kPage = 4096;
// Mapped and asked about at once.
constexpr uint64_t kWindow = uint64_t{1} << 30;
// cachestat(2), Linux 6.5, has the same number everywhere but on alpha.
constexpr long kCachestat = 451;

struct CachestatRange {
  uint64_t offset;
  uint64_t length;
};
struct Cachestat {
  uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

std::optional<uint64_t> AskCachestat(int fd, uint64_t offset, uint64_t bytes) {
  CachestatRange range{offset, bytes};
  Cachestat stat{};
  if (::syscall(kCachestat, fd, &range, &stat, 0) != 0) return {};
  return stat.cached * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::optional<uint64_t> AskMincore(int fd, uint64_t offset, uint64_t bytes) {
  const uint64_t begin = offset / kPage * kPage;
  const uint64_t end = offset + bytes;
  std::vector<unsigned char> pages(kWindow / kPage);
  uint64_t resident = 0;
  for (uint64_t at = begin; at < end; at += kWindow) {
    const size_t length = static_cast<size_t>(std::min(kWindow, end - at));
    void* map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd,
                       static_cast<off_t>(at));
    if (map == MAP_FAILED) return {};
    const bool told = ::mincore(map, length, pages.data()) == 0;
    ::munmap(map, length);
    if (!told) return {};
    const auto last =
        pages.begin() + static_cast<ptrdiff_t>((length + kPage - 1) / kPage);
    resident += kPage * static_cast<uint64_t>(std::count_if(
                            pages.begin(), last,
                            [](unsigned char page) { return page & 1; }));
  }
  return resident;
}

}  // namespace

std::optional<uint64_t> ResidentBytes(const std::string& path, uint64_t offset,
                                      uint64_t bytes) {
  if (bytes == 0) return 0;
  auto file = OpenRegularFile(path);
  if (!file.ok()) return {};
  auto cached = AskCachestat(file->fd.get(), offset, bytes);
  if (!cached) cached = AskMincore(file->fd.get(), offset, bytes);
  // Whole pages are counted, also those that the range only begins in.
  if (cached) *cached = std::min(*cached, bytes);
  return cached;
}

Status DropResident(const std::string& path, uint64_t offset, uint64_t bytes) {
  ECPHORY_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
  // Whole pages only: a part of one stays.
  const uint64_t begin = offset / kPage * kPage;
  const uint64_t end = (offset + bytes + kPage - 1) / kPage * kPage;
  const int error =
      ::posix_fadvise(file.fd.get(), static_cast<off_t>(begin),
                      static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
  if (error == 0) return {};
  return FileError(error, path, "drop from the page cache");
}

}  // namespace ecphory::tables
