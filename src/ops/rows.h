// Moving fp32 rows in and out of packed caches. Encoding rounds: it is the
// model's own quantiser (tensor/row_codec.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/row_codec.h"

namespace ecphory {

// Encodes x[i] into row (first_row + i) % capacity of a ring, or of a plain
// array when first_row + rows <= capacity.
struct StoreRowsArgs {
  const float* x = nullptr;  // [rows, dim]
  size_t rows = 0;
  size_t dim = 0;
  RowFormat format = RowFormat::kF32;
  uint8_t* cache = nullptr;  // [capacity, RowBytes(format, dim)]
  uint64_t first_row = 0;
  uint64_t capacity = 0;
};

// x = decode(encode(x)) in place.
struct RoundRowsArgs {
  float* x = nullptr;  // [rows, dim]
  size_t rows = 0;
  size_t dim = 0;
  RowFormat format = RowFormat::kF32;
};

// x = bf16(x) in place.
struct RoundBf16Args {
  float* x = nullptr;  // [count]
  size_t count = 0;
};

}  // namespace ecphory
