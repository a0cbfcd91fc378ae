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
#include "ops/cpu/panel-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr size_t kRowBlock = kMatmulRowBlock;  // what StoreSums4 reduces
static_assert(kRowBlock == kRowsAtOnce);

// Asks for the bytes `ahead` of a block.
template <class Decoder>
HWY_INLINE void PrefetchAhead(const uint8_t* row, size_t block, size_t ahead) {
  constexpr size_t kLine = 64;
  constexpr size_t kStep = std::max<size_t>(1, kLine / Decoder::kBlockBytes);
  if (block % kStep != 0) return;
  const uint8_t* const next = row + ahead + block * Decoder::kBlockBytes;
#pragma GCC unroll 4
  for (size_t i = 0; i < Decoder::kBlockBytes; i += kLine) {
    hwy::Prefetch(next + i);
  }
}

// Columns [begin, end) of row `row` in its lane order to a sink. False if the
// values are not exactly those of DequantizeRow, or the row is not of whole
// blocks; begin and end are, if it is.
template <class Decoder, class Sink>
HWY_INLINE bool DecodeColumns(const Matrix& weight, size_t row, size_t begin,
                              size_t end, const Sink& sink) {
  constexpr size_t kBlock = Decoder::kBlock;
  if (!WholeBlocks<Decoder>(weight.cols)) return false;
  // Of whole rows the next ones follow in memory, and processors do not look
  // ahead past the end of a page; of others the columns behind these are next.
  constexpr size_t kPage = 4096;
  const size_t ahead = end - begin == weight.cols
                           ? kPage
                           : (end - begin) / kBlock * Decoder::kBlockBytes;
  Decoder decoder(weight, row);
  const uint8_t* const bytes = RowData(weight, row);
  for (size_t b = begin / kBlock; b < end / kBlock; ++b) {
    PrefetchAhead<Decoder>(bytes, b, ahead);
    DecodeBlock(decoder, b, sink.At(b * kBlock - begin));
  }
  return decoder.exact();
}

// Rows [row, row + count) of W, as many as a panel holds. `panel`: as kernels
// are given it.
template <class Decoder>
HWY_INLINE void MultiplyTokens(const Matrix& weight, size_t row, size_t count,
                               const PanelShape& shape, const TokenRows& tokens,
                               float* panel) {
  float* const whole_row = panel;
  float* const values = whole_row + PanelStride(weight.cols);
  Panel part{.values = values,
             .cols = weight.cols,
             .first_row = row,
             .rows = count,
             .sums = values + shape.rows * PanelStride(shape.cols)};
  for (; part.end < weight.cols; part.begin = part.end) {
    part.end = std::min(weight.cols, part.begin + shape.cols);
    const size_t cols = part.end - part.begin;
    for (size_t r = 0; r < part.padded_rows(); ++r) {
      const size_t source = row + std::min(r, count - 1);
      float* const out = PanelRow(values, cols, r);
      if (DecodeColumns<Decoder>(weight, source, part.begin, part.end,
                                 PanelSink{out})) {
        continue;
      }
      DequantizeRow(weight, source, whole_row);
      StorePanelRow(whole_row + part.begin, cols, out);
    }
    MultiplyPanel(part, tokens);
  }
}

// The same with bf16 inputs, of rows that are unpacked in `panel` first.
template <class Decoder>
HWY_INLINE void MultiplyTokensBf16(const Matrix& weight, size_t row,
                                   size_t count, const TokenRows& tokens,
                                   float* panel) {
  const size_t padded = CeilDiv(count, kRowBlock) * kRowBlock;
  const size_t stride = Bf16PanelStride(weight.cols);
  uint16_t* const rows =
      reinterpret_cast<uint16_t*>(panel + PanelStride(weight.cols));
  for (size_t r = 0; r < padded; ++r) {
    const size_t source = row + std::min(r, count - 1);
    if (!DecodeColumns<Decoder>(weight, source, 0, weight.cols,
                                StoreSink{panel})) {
      DequantizeRow(weight, source, panel);
    }
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
    const size_t step = PanelShapeOf(weight.cols / 2, tokens.tokens).rows;
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
  const PanelShape shape = PanelShapeOf(weight.cols, tokens.tokens);
  const auto multiply = [&](size_t row, size_t count) {
    MultiplyTokens<Decoder>(weight, row, count, shape, packed, panel);
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
  for (size_t row = begin; row < end; row += shape.rows) {
    multiply(row, std::min(shape.rows, end - row));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
