// y = x W^T over a range of rows of W, for one weight format; compiled once per
// format and Highway target.
//
// One token: bound by reading W, so weights go from codes to products in
// registers, 4 rows at a time. Several tokens: bound by multiply-adds, so a
// panel of rows is unpacked once and multiplied with every token (gemm.h). Both
// take a row's values in the lane order of its WeightDecoder, with x packed
// alike, and add up in DotBlock's order.
#if defined(ECPHORY_OPS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_MATMUL_INL_H_
#undef ECPHORY_OPS_CPU_MATMUL_INL_H_
#else
#define ECPHORY_OPS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/weight_decoder-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kRowBlock = kMatmulRowBlock;  // what StoreSums4 reduces

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

// A sink that multiplies a block with x and adds the products up.
struct ProductSink {
  HWY_INLINE void operator()(size_t i, VF w) const {
    sum = hn::MulAdd(w, Load(x + i), sum);
  }
  const float* HWY_RESTRICT x;
  VF& sum;
};

// False when a row was not decoded exactly: then y is not to be used.
template <class Decoder>
HWY_INLINE bool MultiplyOneToken(const Matrix& weight, const RowGroup& group,
                                 const float* HWY_RESTRICT x, float* y) {
  Decoder row0(weight, group.row(0));
  Decoder row1(weight, group.row(1));
  Decoder row2(weight, group.row(2));
  Decoder row3(weight, group.row(3));
  VF sum0 = hn::Zero(kF), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const size_t blocks = weight.cols / Decoder::kBlock;
  for (size_t b = 0; b < blocks; ++b, x += Decoder::kBlock) {
    row0.Block(b, ProductSink{x, sum0});
    row1.Block(b, ProductSink{x, sum1});
    row2.Block(b, ProductSink{x, sum2});
    row3.Block(b, ProductSink{x, sum3});
  }
  float sums[kRowBlock];
  StoreSums4(sum0, sum1, sum2, sum3, sums);
  group.StoreSums(sums, y);
  return row0.exact() && row1.exact() && row2.exact() && row3.exact();
}

// Row `row` in its lane order, rows of any length.
template <class Decoder>
HWY_INLINE void UnpackRow(const Matrix& weight, size_t row, float* out) {
  if (WholeBlocks<Decoder>(weight.cols)) {
    Decoder decoder(weight, row);
    const size_t blocks = weight.cols / Decoder::kBlock;
    for (size_t b = 0; b < blocks; ++b) {
      decoder.Block(b, StoreSink{out + b * Decoder::kBlock});
    }
    if (decoder.exact()) return;
  }
  DequantizeRow(weight, row, out);
}

// Rows [row, row + count) of W, as many as the panel holds.
template <class Decoder>
HWY_INLINE void MultiplyTokens(const Matrix& weight, size_t row, size_t count,
                               const TokenRows& tokens, float* panel) {
  const size_t padded = CeilDiv(count, kRowBlock) * kRowBlock;
  for (size_t r = 0; r < padded; ++r) {
    UnpackRow<Decoder>(weight, row + std::min(r, count - 1),
                       panel + r * PanelStride(weight.cols));
  }
  MultiplyPanel({panel, weight.cols, row, count}, tokens);
}

// `x[t]` with every token in the format's lane order, in this thread's scratch.
template <class Decoder>
HWY_INLINE void PackTokens(const Matrix& weight, const TokenRows& tokens,
                           const float** x) {
  struct Packed;
  const size_t cols = weight.cols;
  float* const packed = Decoder::kOrder == LaneOrder::kNatural
                            ? nullptr
                            : ThreadScratch<Packed>(tokens.tokens * cols);
  for (size_t t = 0; t < tokens.tokens; ++t) {
    x[t] = PackX<Decoder::kOrder>(tokens.x[t], cols, packed + t * cols);
  }
}

template <class Decoder>
HWY_INLINE void MatmulRowRange(const Matrix& weight, const TokenRows& tokens,
                               size_t begin, size_t end, float* panel) {
  const float* x[kMaxTokenBlock];
  PackTokens<Decoder>(weight, tokens, x);
  const TokenRows packed{x, tokens.y, tokens.tokens};
  const bool in_registers =
      WholeBlocks<Decoder>(weight.cols) && tokens.tokens == 1;
  const size_t step =
      in_registers ? kRowBlock : PanelRows(weight.cols, tokens.tokens);
  for (size_t row = begin; row < end; row += step) {
    if (in_registers && MultiplyOneToken<Decoder>(weight, RowGroup(row, end),
                                                  x[0], tokens.y[0])) {
      continue;
    }
    MultiplyTokens<Decoder>(weight, row, std::min(step, end - row), packed,
                            panel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
