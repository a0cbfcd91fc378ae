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
#include "hwy/cache_control.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_bf16.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/matvec-inl.h"
#include "ops/cpu/matvec_tiles-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kRowBlock = kMatmulRowBlock;  // what StoreSums4 reduces
static_assert(kRowBlock == kRowsAtOnce);

// The rows behind this one follow it in memory, and processors do not look
// ahead past the end of a page: asks for the bytes that come a page later.
template <class Decoder>
HWY_INLINE void PrefetchAhead(const uint8_t* row, size_t block) {
  constexpr size_t kAhead = 4096;
  constexpr size_t kLine = 64;
  constexpr size_t kStep = std::max<size_t>(1, kLine / Decoder::kBlockBytes);
  if (block % kStep != 0) return;
  const uint8_t* const next = row + kAhead + block * Decoder::kBlockBytes;
#pragma GCC unroll 4
  for (size_t i = 0; i < Decoder::kBlockBytes; i += kLine) {
    hwy::Prefetch(next + i);
  }
}

// Row `row` in its lane order, rows of any length.
template <class Decoder>
HWY_INLINE void UnpackRow(const Matrix& weight, size_t row, float* out) {
  if (WholeBlocks<Decoder>(weight.cols)) {
    Decoder decoder(weight, row);
    const uint8_t* const bytes = RowData(weight, row);
    const size_t blocks = weight.cols / Decoder::kBlock;
    for (size_t b = 0; b < blocks; ++b) {
      PrefetchAhead<Decoder>(bytes, b);
      DecodeBlock(decoder, b, StoreSink{out + b * Decoder::kBlock});
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

// The same with bf16 inputs.
template <class Decoder>
HWY_INLINE void MultiplyTokensBf16(const Matrix& weight, size_t row,
                                   size_t count, const TokenRows& tokens,
                                   float* panel) {
  const size_t padded = CeilDiv(count, kRowBlock) * kRowBlock;
  const size_t stride = Bf16PanelStride(weight.cols);
  uint16_t* const rows =
      reinterpret_cast<uint16_t*>(panel + PanelStride(weight.cols));
  for (size_t r = 0; r < padded; ++r) {
    UnpackRow<Decoder>(weight, row + std::min(r, count - 1), panel);
    PackBf16(panel, weight.cols, rows + r * stride);
  }
  MultiplyPanelBf16({rows, weight.cols, row, count}, tokens);
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
  if (packed != nullptr) {
    thread_local uint64_t packed_id = 0;
    x[0] = packed;
    if (tokens.input_id != 0 && tokens.input_id == packed_id) return;
    packed_id = tokens.input_id;
  }
  for (size_t t = 0; t < tokens.tokens; ++t) {
    x[t] = PackX<Decoder::kOrder>(tokens.x[t], cols, packed + t * cols);
  }
}

template <class Decoder>
void MatmulRowRange(const Matrix& weight, const TokenRows& tokens, size_t begin,
                    size_t end, float* panel) {
  if (tokens.x16 != nullptr) {
    const size_t step = PanelRows(weight.cols / 2, tokens.tokens);
    for (size_t row = begin; row < end; row += step) {
      MultiplyTokensBf16<Decoder>(weight, row, std::min(step, end - row),
                                  tokens, panel);
    }
    return;
  }
  const bool one = WholeBlocks<Decoder>(weight.cols) && tokens.tokens == 1;
  if (tokens.apart != 0 && (kTileScales<Decoder> || !one)) {
    TokenRows run = tokens;
    run.apart = 0;
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
      MatmulRowRange<Decoder>(weight, run, begin + r * tokens.apart,
                              end + r * tokens.apart, panel);
    }
    return;
  }
  const float* x[kMaxTokenBlock];
  PackTokens<Decoder>(weight, tokens, x);
  const TokenRows packed{.x = x, .y = tokens.y, .tokens = tokens.tokens};
  const auto multiply = [&](size_t row, size_t count) {
    MultiplyTokens<Decoder>(weight, row, count, packed, panel);
  };
  if (one) {
    if constexpr (kTileScales<Decoder>) {
      MatvecTiles(weight, x[0], tokens.input_id, tokens.y[0], begin, end,
                  multiply);
    } else {
      MatvecRows<Decoder>(weight, x[0], tokens.y[0], begin, end, tokens.apart,
                          multiply);
    }
    return;
  }
  const size_t step = PanelRows(weight.cols, tokens.tokens);
  for (size_t row = begin; row < end; row += step) {
    multiply(row, std::min(step, end - row));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
