// y = x * W^T: W packed as in the file, x and y fp32, fp32 accumulation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace ecphory {

// What a product may take its input for.
enum class MatmulInput : uint8_t {
  // As it is; but Q2_K and IQ2_XXS on processors with AVX-512 VNNI take it for
  // integers (ops/cpu/digits-inl.h): off by no more than sums in fp32 are
  // rounded, except that values below 2^-6 of the largest of their 32 or 256
  // are off by up to 2^-30.9 of that, whatever it is multiplied with.
  kF32,
  kBF16,  // x holds bf16 values: products may be formed from bf16, exactly.
          // Sums are those of kF32 (AMX: of up to kMaxFewTokens tokens), but
          // denormals may count as zero.
  kBF16InOrder,  // likewise, and on AMX too sums are those of kF32
  // x rounded to int8 in blocks of 32 (tensor/int8_block.h) for formats with
  // TakesInt8(), as it is for others: faster, approximate. The weights are
  // exact; sums are fp32: of Q4_K and Q2_K those of 32 or 16 inputs, too, so
  // that inputs of more than 2^122 may give what is not finite.
  kInt8,
};

inline bool IsBf16(MatmulInput input) {
  return input == MatmulInput::kBF16 || input == MatmulInput::kBF16InOrder;
}

// Formats whose weights are small integers times a scale. The codes of FP8 and
// of plain floats are no such integers: their products take x as it is.
inline bool TakesInt8(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
    case WeightFormat::kMXFP4:
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ2_K:
    case WeightFormat::kIQ2_XXS:
    case WeightFormat::kFp4Row32: return true;
    default: return false;
  }
}

// Batch invariance: y[t] is the same bits whatever `tokens` is and whatever
// the thread count, so that chunking a prompt never changes a result. (kBF16
// on AMX, and kInt8 everywhere: among calls of up to kMaxFewTokens, and of
// more. CUDA: of up to 4 tokens, or 8 in some formats, of up to 64, of more.)
inline constexpr size_t kMaxFewTokens = 8;
struct MatmulArgs {
  Matrix weight;             // [out, in]
  const float* x = nullptr;  // [tokens, in], rows x_stride apart
  float* y = nullptr;        // [tokens, out], rows y_stride apart
  size_t tokens = 0;
  size_t x_stride = 0;  // floats; 0 = in
  size_t y_stride = 0;  // floats; 0 = out
  MatmulInput input = MatmulInput::kF32;
  bool round_bf16 = false;  // y
};

// Several such products at once (`matmuls`, ops/calls.h) may have weights of
// any formats and shapes, and as many tokens each. On the processor they have
// the bits of `matmul`; on CUDA they are summed in an order of their own, which
// is that of the shapes in the list.

}  // namespace ecphory
