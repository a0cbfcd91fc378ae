// The rows of one lookup, in reading order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "engram/table_reader.h"

namespace ecphory::engram {

// Reused from lookup to lookup, so that its buffers are allocated once.
class Lookup {
 public:
  // Sorts `rows` by their place on disk and drops duplicates. kOutOfRange
  // names a row that `table` does not have; nothing is left to read then.
  Status Prepare(const TableReader& table, const LookupRequest& request);

  // Rows to read.
  size_t distinct_rows() const { return groups_.size(); }
  size_t row_bytes() const { return table_->row_bytes(); }

  // Reads distinct rows [begin, end) in order into their places; *done counts
  // those before the first that failed. Thread-safe for disjoint ranges.
  Status Read(size_t begin, size_t end, std::span<uint8_t> scratch,
              size_t* done) const;

  // Gives back what an unusually large lookup allocated.
  void Trim();

 private:
  struct Request {
    uint64_t row;
    size_t place;  // in `out`, in rows
  };
  Status ReadGroup(size_t group, std::span<uint8_t> scratch) const;
  void Write(const float* values, const uint8_t* raw, size_t place) const;

  const TableReader* table_ = nullptr;
  uint8_t* out_ = nullptr;
  RowFormat format_ = RowFormat::kF32;
  std::vector<Request> requests_;  // sorted by row
  std::vector<size_t> groups_;     // first request of each distinct row
};

}  // namespace ecphory::engram
