#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "io/errno_status.h"
#include "io/file.h"
#include "io/file_internal.h"

namespace ecphory {

Result<std::shared_ptr<FileMapping>> FileMapping::Map(const std::string& path,
                                                      uint64_t offset,
                                                      uint64_t size) {
  ECPHORY_ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
  ECPHORY_RETURN_IF_ERROR(CheckRange(path, file.size, offset, size));
  std::shared_ptr<FileMapping> mapping(new FileMapping());
  if (size == 0) return mapping;  // mmap refuses an empty range

  // mmap wants a page boundary: start at the page that holds `offset`.
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t lead = offset % page;
  const size_t mapped_bytes = static_cast<size_t>(lead + size);
  void* base = ::mmap(nullptr, mapped_bytes, PROT_READ, MAP_SHARED,
                      file.fd.get(), static_cast<off_t>(offset - lead));
  if (base == MAP_FAILED) return FileError(errno, path, "map into memory");
  mapping->base_ = base;
  mapping->mapped_bytes_ = mapped_bytes;
  mapping->bytes_ = {static_cast<const uint8_t*>(base) + lead,
                     static_cast<size_t>(size)};
  return mapping;
}

FileMapping::~FileMapping() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

}  // namespace ecphory
