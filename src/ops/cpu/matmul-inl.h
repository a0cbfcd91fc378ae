// y = x W^T over a range of rows of W, for one weight format; compiled once per
// format and Highway target.
//
// One token: bound by reading W, so weights go from codes to products in
// registers, 4 rows at a time. Several tokens: bound by multiply-adds, so 4
// rows are unpacked once into an L1 panel and multiplied with every token. Both
// add up in DotBlock's order. A format's Decoder gives 32 values at a time:
//   Decoder(const Matrix&, size_t row);
//   void Block(size_t block, VF out[kBlockVectors]) const;
#if defined(ECPHORY_OPS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_MATMUL_INL_H_
#undef ECPHORY_OPS_CPU_MATMUL_INL_H_
#else
#define ECPHORY_OPS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>

#include "ops/cpu/code_tables.h"
#include "ops/cpu/decode-inl.h"
#include "ops/cpu/dot-inl.h"
#include "ops/cpu/matmul_rows.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

static_assert(kRowBlock == kMatmulRowBlock);

// Up to 4 rows of W; missing ones repeat the last, so that kernels need no
// case for them.
struct RowGroup {
  RowGroup(size_t begin, size_t end)
      : first(begin), count(std::min(kRowBlock, end - begin)) {}
  size_t row(size_t r) const { return first + std::min(r, count - 1); }
  void StoreSums(const float* sums, float* y) const {
    if (count == kRowBlock) {  // a size known to the compiler: no call
      std::memcpy(y + first, sums, kRowBlock * sizeof(float));
    } else {
      std::memcpy(y + first, sums, count * sizeof(float));
    }
  }
  size_t first;
  size_t count;
};

template <class Decoder>
HWY_INLINE void MultiplyOneToken(const Matrix& weight, const RowGroup& group,
                                 const float* HWY_RESTRICT x, float* y) {
  const Decoder row0(weight, group.row(0));
  const Decoder row1(weight, group.row(1));
  const Decoder row2(weight, group.row(2));
  const Decoder row3(weight, group.row(3));
  VF acc0 = hn::Zero(kF), acc1 = acc0, acc2 = acc0, acc3 = acc0;
  const size_t blocks = weight.cols / 32;
  for (size_t b = 0; b < blocks; ++b, x += 32) {
    VF w0[kBlockVectors], w1[kBlockVectors];
    VF w2[kBlockVectors], w3[kBlockVectors];
    row0.Block(b, w0);
    row1.Block(b, w1);
    row2.Block(b, w2);
    row3.Block(b, w3);
#pragma GCC unroll 8
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const VF xv = Load(x + v * kLanes);
      acc0 = hn::MulAdd(w0[v], xv, acc0);
      acc1 = hn::MulAdd(w1[v], xv, acc1);
      acc2 = hn::MulAdd(w2[v], xv, acc2);
      acc3 = hn::MulAdd(w3[v], xv, acc3);
    }
  }
  float sums[kRowBlock];
  StoreSums4(acc0, acc1, acc2, acc3, sums);
  group.StoreSums(sums, y);
}

template <class Decoder>
HWY_INLINE void UnpackRow(const Matrix& weight, size_t row, float* out) {
  const Decoder decoder(weight, row);
  const size_t blocks = weight.cols / 32;
  for (size_t b = 0; b < blocks; ++b) {
    VF w[kBlockVectors];
    decoder.Block(b, w);
#pragma GCC unroll 8
    for (size_t v = 0; v < kBlockVectors; ++v) {
      Store(w[v], out + b * 32 + v * kLanes);
    }
  }
}

HWY_INLINE void MultiplyPanel(const RowGroup& group, const TokenRows& tokens,
                              size_t cols, const float* panel) {
  const size_t stride = PanelStride(cols);
  const float* const rows[kRowBlock] = {panel, panel + stride,
                                        panel + 2 * stride, panel + 3 * stride};
  for (size_t t = 0; t < tokens.tokens; t += kVectorBlock) {
    const size_t count = std::min(kVectorBlock, tokens.tokens - t);
    float sums[kVectorBlock * kRowBlock];
    DotUpTo(count, rows, tokens.x + t, cols, sums);
    for (size_t i = 0; i < count; ++i) {
      group.StoreSums(sums + i * kRowBlock, tokens.y[t + i]);
    }
  }
}

// Only F32, F16, BF16 and FP8 rows can be other than whole blocks of 32; such
// odd shapes take the plain decoder.
template <class Decoder>
HWY_INLINE void MatmulRowRange(const Matrix& weight, const TokenRows& tokens,
                               size_t begin, size_t end, float* panel) {
  const bool whole_blocks = weight.cols % 32 == 0;
  for (size_t row = begin; row < end; row += kRowBlock) {
    const RowGroup group(row, end);
    if (whole_blocks && tokens.tokens == 1) {
      MultiplyOneToken<Decoder>(weight, group, tokens.x[0], tokens.y[0]);
      continue;
    }
    for (size_t r = 0; r < kRowBlock; ++r) {
      float* const out = panel + r * PanelStride(weight.cols);
      if (whole_blocks) {
        UnpackRow<Decoder>(weight, group.row(r), out);
      } else {
        DequantizeRow(weight, group.row(r), out);
      }
    }
    MultiplyPanel(group, tokens, weight.cols, panel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
