// Table rows decoded on an NVIDIA GPU, where they lie as the store read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engram/row_codec.h"

namespace ecphory::engram {

struct DeviceRows {
  TableCodec codec = TableCodec::kRow264;
  const uint8_t* rows = nullptr;    // [count], `row_stride` bytes apart
  size_t row_stride = 0;            // >= TableRowBytes(codec, width)
  const uint8_t* scales = nullptr;  // kReleasedPair: [count], else null
  size_t scale_stride = 0;
  size_t count = 0;
  size_t width = 0;  // a multiple of kTableBlock
  // [count, width]; one of the two.
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;
  // Becomes the index of the first broken row if that is less than what is
  // there; the values of broken rows are unspecified.
  uint32_t* first_broken = nullptr;
};

// DecodeTableRow(), bit for bit, of every row. All pointers are device memory,
// or host memory that the device can reach, of any alignment; f32 and bf16 are
// aligned to 16 bytes for full speed. Returns when the work is queued in the
// thread's stream (ops/cuda/stream.h), where errors are found as well.
void DecodeRowsOnDevice(const DeviceRows& rows);

}  // namespace ecphory::engram
