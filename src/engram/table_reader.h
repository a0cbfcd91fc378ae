// One table on disk, checked, and how to read a row of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ecphory/status.h"
#include "engram/store.h"

namespace ecphory::engram {

// Rows wider than this are refused: they bound every reader's scratch.
inline constexpr uint32_t kMaxTableWidth = 1 << 16;

// Thread-safe: constant after Open().
class TableReader {
 public:
  // Refuses what Store::Open refuses.
  static Result<TableReader> Open(TableSource source);

  const TableSource& source() const { return source_; }
  // Read for one row, scales included; also the scratch that ReadRow needs.
  size_t row_bytes() const { return main_bytes_ + scale_bytes_; }

  // Reads and decodes row `row` (< rows) into out[width]. `scratch` holds at
  // least row_bytes() and keeps the row as it is on disk. Errors name table and
  // row.
  Status ReadRow(uint64_t row, std::span<uint8_t> scratch, float* out) const;

 private:
  Status CheckShape() const;
  Status CheckExtent(const RandomAccessFile* file, uint64_t offset,
                     size_t bytes_per_row) const;
  Status CheckSample() const;
  Status ReadBytes(uint64_t row, std::span<uint8_t> scratch) const;

  TableSource source_;
  size_t main_bytes_ = 0;   // of a row in the main tensor
  size_t scale_bytes_ = 0;  // of a row in the tensor of scales
};

}  // namespace ecphory::engram
