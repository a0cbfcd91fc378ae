// A large file opened both ways: through the page cache and past it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/file.h"
#include "io/file_system.h"
#include "io/unique_fd.h"

namespace ecphory {

// Descriptors of one inode, whatever is renamed over its path meanwhile.
// Immutable after Open, thread-safe.
class TableFile {
 public:
  // Keeps `file` open. A file without a descriptor (in memory, a test's) is
  // fine and can be read by ReadExact only. O_DIRECT that is refused is no
  // error: direct() is -1 and direct_refusal() says why. A process out of
  // descriptors is kResourceExhausted.
  static Result<std::shared_ptr<const TableFile>> Open(
      std::shared_ptr<RandomAccessFile> file);

  const RandomAccessFile& file() const { return *file_; }
  const std::string& path() const { return file_->path(); }
  uint64_t size() const { return file_->size(); }  // when it was opened

  // Reads through the page cache, without read-ahead. -1: no descriptor.
  int buffered() const { return buffered_.get(); }
  // Reads past the page cache (O_DIRECT). -1: refused.
  int direct() const { return direct_.get(); }
  // What offsets, lengths and addresses of direct reads are multiples of: a
  // power of two, 512 or more; 1 when direct() is -1.
  uint32_t alignment() const { return alignment_; }
  // One clause, such as "tmpfs keeps files in memory"; empty when direct.
  const std::string& direct_refusal() const { return refusal_; }
  // name "memory" without a descriptor.
  const FileSystemKind& file_system() const { return file_system_; }

  // Fills `out` from `offset`, past the page cache where that is allowed and
  // without read-ahead elsewhere. For a few bytes now and then: allocates.
  // Errors are those of RandomAccessFile::ReadExact.
  Status ReadExact(uint64_t offset, std::span<uint8_t> out) const;

  // kCorrupt when the file has become shorter than it was at Open.
  Status CheckSize() const;

 private:
  TableFile() = default;
  Status OpenDescriptors();
  Status OpenDirect();
  bool ReadAt(int fd, uint64_t offset, std::span<uint8_t> out) const;
  void Refuse(int error);

  std::shared_ptr<RandomAccessFile> file_;
  UniqueFd buffered_;
  UniqueFd direct_;
  uint32_t alignment_ = 1;
  std::string refusal_;
  FileSystemKind file_system_{"memory", false, true};
};

}  // namespace ecphory
