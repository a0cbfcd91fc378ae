// Panels of rows of bf16 values times bf16 inputs, by AVX512_BF16: twice the
// products of fp32 an instruction. The instruction adds the product of the high
// halves to a lane's sum, then that of the low halves, each with one rounding,
// as two fp32 multiply-adds do. So with a block's first vector in the high
// halves and its second in the low ones the sums are those of gemm.h bit for
// bit, but for denormals, which it takes for zero (DenormalsAreZero).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/matmul_rows.h"
#include "ops/matmul.h"

namespace ecphory {

// Whether products of `weight` with `tokens` inputs are to be formed from bf16:
// `input` allows it, this processor and the Highway target can, all of the
// format's values are bf16, and there are enough tokens for it to pay.
bool TakesBf16(const Matrix& weight, MatmulInput input, size_t tokens);

// n values of an input, which are bf16, for weights of a format, as n codes.
// Blocks of 32 are independent of each other. Only if TakesBf16().
void PackBf16Input(WeightFormat format, const float* x, size_t n,
                   uint16_t* out);
// The same of values in the format's lane order, such as unpacked rows.
void PackBf16(const float* x, size_t n, uint16_t* out);

// Rows of PackBf16(), padded like Panel's.
struct Bf16Panel {
  const uint16_t* values = nullptr;  // rows Bf16PanelStride(cols) apart
  size_t cols = 0;
  size_t first_row = 0;  // of W
  size_t rows = 0;       // that exist in W
};
inline size_t Bf16PanelStride(size_t cols) { return 2 * PanelStride(cols / 2); }

// y[t][row] = row . x16[t] for the panel's rows.
void MultiplyPanelBf16(const Bf16Panel& panel, const TokenRows& tokens);

// While it lives, this thread's fp32 arithmetic takes denormals for zero if
// `input` is kBF16 and the kernels above exist here: then results do not depend
// on whether they were used.
class DenormalsAreZero {
 public:
  explicit DenormalsAreZero(MatmulInput input);
  ~DenormalsAreZero();
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  bool active_;
  unsigned saved_ = 0;
};

}  // namespace ecphory
