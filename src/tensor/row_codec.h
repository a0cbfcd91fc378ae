// Packed rows: how caches and Engram tables hold a vector in few bytes.
// Encoding a row IS the model's rounding step (docs/formats.md, 'Numerics').
#pragma once

#include <cstddef>
#include <cstdint>

#include "ecphory/status.h"

namespace ecphory {

// Layout of each packed format: all codes of the row, then all its scales.
enum class RowFormat : uint8_t {
  kF32,         // dim floats: no rounding (conformance work)
  kFp8Block32,  // window KV: dim e4m3 codes, dim/32 e8m0 scales
  kFp4Block16,  // compressed KV: dim/2 bytes, low nibble even; dim/16 e4m3
  kFp4Block32,  // indexer queries and keys: dim/2 bytes, dim/32 e8m0
};

const char* RowFormatName(RowFormat format);
// Values a row's length must be a multiple of.
size_t RowBlock(RowFormat format);
// Bytes of one row of `dim` values (dim a multiple of RowBlock()).
// Released sizes: 528 (window, 512), 288 (compressed, 512), 68 (index, 128).
size_t RowBytes(RowFormat format, size_t dim);

// Rounds x[dim] to the format, block by block, with amax = max |x|:
//   kFp8Block32: s = 2^ceil(log2(max(amax, 1e-4) * fl32(1/448))),
//                codes e4m3(clamp(x / s, +-448))
//   kFp4Block32: s = 2^ceil(log2(max(amax, 6 * 2^-126) * fl32(1/6))),
//                codes e2m1(clamp(x / s, +-6))
//   kFp4Block16: s = e4m3(min(max(amax, 6 * 2^-9) / 6, 448)),
//                codes e2m1(clamp(x / s, +-6))
// A NaN or an infinity makes its whole block decode to NaN. `dim` is a multiple
// of RowBlock(format).
void EncodeRow(RowFormat format, const float* x, size_t dim, uint8_t* out);
void DecodeRow(RowFormat format, const uint8_t* in, size_t dim, float* x);

}  // namespace ecphory
