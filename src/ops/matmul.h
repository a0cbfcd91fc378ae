// y = x * W^T: W packed as in the file, x and y fp32, fp32 accumulation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace ecphory {

// What a product may take its input for. A permission: a format without a
// kernel for the cheaper input takes kF32.
enum class MatmulInput : uint8_t {
  kF32,   // as it is
  kBF16,  // x holds bf16 values: products may be formed from bf16, exactly.
          // Sums are those of kF32, but denormals may count as zero.
  kInt8,  // x may be rounded to int8 in blocks: faster, approximate
};

// Batch invariance: y[t] is the same bits whatever `tokens` is and whatever
// the thread count, so that chunking a prompt never changes a result. (CUDA:
// among calls of up to 8 tokens, and among calls of more.)
struct MatmulArgs {
  Matrix weight;             // [out, in]
  const float* x = nullptr;  // [tokens, in], rows x_stride apart
  float* y = nullptr;        // [tokens, out], rows y_stride apart
  size_t tokens = 0;
  size_t x_stride = 0;  // floats; 0 = in
  size_t y_stride = 0;  // floats; 0 = out
  MatmulInput input = MatmulInput::kF32;
};

}  // namespace ecphory
