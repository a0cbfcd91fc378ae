// y = x * W^T: W packed as in the file, x and y fp32, fp32 accumulation.
#pragma once

#include <cstddef>

#include "tensor/matrix.h"

namespace ecphory {

// Batch invariance: y[t] is the same bits whatever `tokens` is and whatever
// the thread count, so that chunking a prompt never changes a result.
struct MatmulArgs {
  Matrix weight;             // [out, in]
  const float* x = nullptr;  // [tokens, in], rows x_stride apart
  float* y = nullptr;        // [tokens, out], rows y_stride apart
  size_t tokens = 0;
  size_t x_stride = 0;  // floats; 0 = in
  size_t y_stride = 0;  // floats; 0 = out
};

}  // namespace ecphory
