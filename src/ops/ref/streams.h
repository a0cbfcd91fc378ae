// Residual streams of either format, a value at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/residual_streams.h"
#include "tensor/float_codec.h"

namespace ecphory::ref {

// To fp32, and on to bf16 where the streams are.
inline float Rounded(double value, StreamFormat format) {
  const float rounded = static_cast<float>(value);
  return format == StreamFormat::kBF16 ? RoundToBF16(rounded) : rounded;
}

inline float GetStream(ConstStreams h, size_t i) {
  if (h.is_bf16()) return BF16ToF32(static_cast<const uint16_t*>(h.data)[i]);
  return static_cast<const float*>(h.data)[i];
}

inline void SetStream(Streams h, size_t i, double value) {
  const float rounded = static_cast<float>(value);
  if (h.is_bf16()) {
    static_cast<uint16_t*>(h.data)[i] = F32ToBF16(rounded);
  } else {
    static_cast<float*>(h.data)[i] = rounded;
  }
}

// Values [first, first + count).
inline std::vector<float> StreamValues(ConstStreams h, size_t first,
                                       size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = GetStream(h, first + i);
  return values;
}

}  // namespace ecphory::ref
