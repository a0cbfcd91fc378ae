// y = w * x * rsqrt(mean(x^2) + eps), row by row.
#pragma once

#include <cstddef>

namespace ecphory {

struct RmsNormArgs {
  const float* x = nullptr;       // [rows, dim]
  const float* weight = nullptr;  // [dim]; null = all ones
  float* y = nullptr;             // [rows, dim]; may equal x
  size_t rows = 0;
  size_t dim = 0;
  float eps = 0;            // rms_norm_eps: 1e-20 in the release
  bool round_bf16 = false;  // y
};

}  // namespace ecphory
