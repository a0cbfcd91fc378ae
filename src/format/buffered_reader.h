// Front-to-back reading of a file's header through a window.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "io/file.h"

namespace ecphory {

// The window starts small, so that a small header costs one small read, and
// doubles with every refill, so that a large one costs few.
class BufferedReader {
 public:
  // Reads at most the first `limit` bytes of `file`, which must outlive this.
  BufferedReader(const RandomAccessFile& file, uint64_t limit)
      : file_(file), end_(std::min(file.size(), limit)) {}

  uint64_t position() const { return window_begin_ + used_; }
  uint64_t remaining() const { return end_ - position(); }

  // Fills `out`; the caller has checked remaining().
  Status Read(std::span<uint8_t> out);

 private:
  Status Refill();

  const RandomAccessFile& file_;
  const uint64_t end_;
  uint64_t window_begin_ = 0;  // file offset of window_[0]
  size_t used_ = 0;            // bytes of the window already handed out
  size_t next_window_ = size_t{64} << 10;
  std::vector<uint8_t> window_;
};

}  // namespace ecphory
