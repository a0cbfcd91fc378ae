// Large reads of a file range at the disk's sequential speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "io/unique_fd.h"

namespace ecphory::tables {

// Aligned memory for reads that bypass the page cache.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(size_t bytes);
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t size_;
};

// Bypasses the page cache where the file system allows it, and otherwise tells
// the kernel to forget what was read: a 200 GB pass must not evict everything
// else. Thread-safe.
class DirectReader {
 public:
  static Result<std::unique_ptr<DirectReader>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  bool direct() const { return direct_; }

  // What a buffer must hold for reads of `bytes`: alignment on both sides.
  static size_t BufferBytes(size_t bytes);
  // [offset, offset + bytes), which lies somewhere in `buffer`. A file that
  // ends early is kCorrupt.
  Result<std::span<const uint8_t>> Read(uint64_t offset, size_t bytes,
                                        const AlignedBuffer& buffer) const;

 private:
  DirectReader() = default;
  Result<size_t> ReadSome(uint64_t begin, size_t wanted, size_t needed,
                          uint8_t* out) const;

  std::string path_;
  UniqueFd fd_;
  uint64_t size_ = 0;
  bool direct_ = false;
};

}  // namespace ecphory::tables
