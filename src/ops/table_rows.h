// Rows of an Engram table, from where they lie to values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/table_codec.h"

namespace ecphory {

// Packed rows, `row_stride` bytes apart, of any alignment. The memory may be
// such that the device shares (ops/device.h).
struct TableRows {
  TableCodec codec = TableCodec::kBf16;
  const uint8_t* rows = nullptr;    // row 0
  size_t row_stride = 0;            // >= TableRowBytes(codec, width)
  const uint8_t* scales = nullptr;  // kReleasedPair: of row 0, else null
  size_t scale_stride = 0;
  // Which of them, [count] (may be shared memory as well); null: 0, 1, 2, ...
  const uint64_t* numbers = nullptr;
};

// x = the values of the rows, bit for bit those of DecodeTableRow
// (tensor/table_codec.h).
struct DecodeRowsArgs {
  TableRows from;
  size_t count = 0;
  size_t width = 0;    // values of a row, a multiple of kTableBlock
  float* x = nullptr;  // [count, width]
  // Becomes 1 when a row is broken, whose values are then unspecified; is left
  // alone otherwise.
  uint32_t* broken = nullptr;
};

}  // namespace ecphory
