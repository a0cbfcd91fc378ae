// One table, checked: where its rows lie and what their bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "engram/store.h"

namespace ecphory::engram {

// Rows wider than this are refused: they bound the size of every read.
inline constexpr uint32_t kMaxTableWidth = 1 << 16;

// Places that a row is kept in: codes, and scales of a released pair.
inline constexpr size_t kMaxParts = 2;

// Thread-safe: constant after Open().
class TableReader {
 public:
  // A tensor that holds a piece of every row, one after the other.
  struct Part {
    RandomAccessFile* file = nullptr;
    uint64_t offset = 0;  // of row 0
    size_t bytes = 0;     // of a row
  };

  // Refuses what Store::Open refuses.
  static Result<TableReader> Open(TableSource source);

  const TableSource& source() const { return source_; }
  size_t parts() const { return parts_[1].bytes > 0 ? 2 : 1; }
  const Part& part(size_t index) const { return parts_[index]; }
  // Of all parts, one after the other: a row as kRaw gives it.
  size_t row_bytes() const { return parts_[0].bytes + parts_[1].bytes; }
  // Of a row as a lookup writes it.
  size_t out_bytes(RowFormat format) const;

  // Turns a row's bytes into `format` at out[out_bytes]. `scales` is read only
  // when there are two parts. False for a broken row; `out` is then
  // unspecified.
  bool Decode(const uint8_t* codes, const uint8_t* scales, RowFormat format,
              uint8_t* out) const;
  // Of a row as kRaw gives it.
  bool Decode(const uint8_t* row, RowFormat format, uint8_t* out) const;

  // "PATH: table 'name', row R at offset O", for errors. Of the part's file.
  std::string PlaceName(uint64_t row, size_t part = 0) const;
  Status BrokenRow(uint64_t row) const;

 private:
  Status CheckShape() const;
  Status CheckExtent(const Part& part) const;
  Status CheckSample() const;

  TableSource source_;
  Part parts_[kMaxParts];
};

}  // namespace ecphory::engram
