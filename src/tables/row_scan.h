// Finding damaged rows at the speed of a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "tensor/table_codec.h"

namespace ecphory::tables {

enum class RowFault : uint8_t {
  kNone,
  kNan,        // an e4m3 code 0x7f or 0xff, or another value that is NaN
  kScale,      // scale code 255
  kNotFinite,  // a value that overflows
};
// "NaN code", "scale 255", "value not finite".
const char* RowFaultName(RowFault fault);

// A row found damaged.
struct FaultyRow {
  RowFault fault = RowFault::kNone;
  uint64_t row = 0;
};

// Rows [first, first + count).
struct RowRun {
  uint64_t first = 0;
  uint64_t count = 0;
};

// What a stretch of consecutive rows of one table holds. Stretches are scanned
// apart and put together in order by ScanTotals.
struct RowScan {
  uint64_t first = 0;
  uint64_t rows = 0;
  uint64_t nan = 0;
  uint64_t scale = 0;
  uint64_t not_finite = 0;
  std::vector<FaultyRow> listed;  // the first few
  // Rows of zero bytes. Runs are noted where they are long enough to be a page
  // that was never written, or touch an end of the stretch.
  uint64_t zero_rows = 0;
  uint64_t first_zero = 0;   // of zero_rows
  std::vector<RowRun> runs;  // inside, in order
  RowRun open;               // ends with the stretch
  uint64_t leading = 0;      // zero rows it begins with
};

// Faulty rows listed for each stretch.
inline constexpr size_t kListedRows = 16;

// A run of zero rows that no 4096-byte page of holes would fit into is not
// noted: zeros are values too.
uint64_t MissingRunRows(size_t row_bytes);

class RowScanner {
 public:
  // Of the rows (or, for kReleasedPair, the codes alone: `scales` false, or the
  // scales alone) of a table.
  RowScanner(TableCodec codec, uint32_t width, bool scales);

  size_t row_bytes() const { return row_bytes_; }
  // Begins a stretch at `first_row`.
  void Begin(uint64_t first_row);
  // The next rows, whole ones.
  void Add(std::span<const uint8_t> rows);
  // Of the pair's scales: rows with scales so large that only the codes can
  // tell whether a value overflows. The caller looks at them.
  const std::vector<uint64_t>& unsure() const { return unsure_; }
  void Fault(RowFault fault, uint64_t row);
  RowScan Finish();

 private:
  struct Seen {
    RowFault fault = RowFault::kNone;
    bool zero = false;
  };
  Seen Look(const uint8_t* row) const;
  Seen LookE4M3(const uint8_t* row) const;
  void CountZero(bool zero, uint64_t row);
  void EndRun();

  TableCodec codec_;
  uint32_t width_;
  bool scales_;
  size_t row_bytes_;
  RowScan scan_;
  RowRun run_;
  std::vector<uint64_t> unsure_;
  mutable std::vector<float> values_;
};

// The stretches of a table put together, in order.
struct ScanTotals {
  uint64_t rows = 0;
  uint64_t nan = 0;
  uint64_t scale = 0;
  uint64_t not_finite = 0;
  uint64_t zero_rows = 0;
  uint64_t first_zero = 0;
  std::vector<FaultyRow> listed;
  uint64_t missing_runs = 0;  // of at least `threshold` rows
  uint64_t missing_rows = 0;  // in these
  RowRun first_missing;
  RowRun longest_missing;

  // `threshold`: MissingRunRows.
  void Add(const RowScan& scan, uint64_t threshold);
  // After the last one.
  void Finish(uint64_t threshold);

 private:
  void Close(const RowRun& run, uint64_t threshold);
  RowRun open_;
};

// One line of text, for journals.
std::string EncodeScan(const RowScan& scan);
Result<RowScan> DecodeScan(const std::string& text);

}  // namespace ecphory::tables
