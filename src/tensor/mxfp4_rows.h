// MXFP4 weights as kFp4Row32: the same codes and scales in as many bytes, with
// the codes in the order of the columns and the scales apart from them. GPUs
// are given such rows, which begin at multiples of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace ecphory {

inline constexpr size_t kMxfp4BlockBytes = 17;  // of 32 values
inline constexpr size_t kMxfp4CodeBytes = 16;   // after the scale

// `count` blocks to codes[16 * count] and scales[count].
void SplitMxfp4(const uint8_t* blocks, size_t count, uint8_t* codes,
                uint8_t* scales);

// The format in which a GPU keeps weights.
inline WeightFormat DeviceFormat(WeightFormat stored) {
  return stored == WeightFormat::kMXFP4 ? WeightFormat::kFp4Row32 : stored;
}

}  // namespace ecphory
