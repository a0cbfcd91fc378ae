// The loop over rows and tokens of products with int8 inputs; compiled once per
// Highway target.
#if defined(ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_
#undef ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_
#else
#define ECPHORY_OPS_CPU_INT8_KERNEL_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "base/ceil_div.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/scratch.h"

#include "ops/cpu/int8_targets-inl.h"
#if ECPHORY_INT8_VECTORS
#include "ops/cpu/int8_dot-inl.h"
#include "ops/cpu/int8_panel-inl.h"
#if HWY_TARGET == HWY_AVX3_DL
#include "ops/cpu/int8_tiles-inl.h"
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

#if ECPHORY_INT8_VECTORS

// Tokens whose rounded inputs stay in the second-level cache (half of 1 MB)
// while all rows meet them.
inline size_t Int8TokenBlock(size_t cols) {
  return std::max<size_t>(8, (size_t{512} << 10) / Int8RowBytes(cols));
}

// 4 rows with every token: their codes are unpacked once.
template <class Codes>
void Int8Panel(const Matrix& weight, const Int8Group& group,
               const TokenRows& tokens) {
  Int8PanelRows<Codes> panel(weight.cols);
  panel.Fill(weight, group);
  for (size_t t = 0; t < tokens.tokens; ++t) {
    float sums[kInt8Rows];
    Int8DotRows(panel.rows, Int8RowAt(tokens.x8[t], weight.cols), weight.cols,
                sums);
    group.StoreSums(sums, tokens.y[t]);
  }
}

template <class Codes>
HWY_INLINE void Int8OneToken(const Matrix& weight, const Int8Group& group,
                             uint8_t* x, float* y) {
  Codes rows[kInt8Rows] = {
      Codes(weight, group.row(0)), Codes(weight, group.row(1)),
      Codes(weight, group.row(2)), Codes(weight, group.row(3))};
  float sums[kInt8Rows];
  Int8DotRows(rows, Int8RowAt(x, weight.cols), weight.cols, sums);
  group.StoreSums(sums, y);
}

// Four rows at a time, a quarter of all rows apart: the processor sees four
// long runs of bytes and reads ahead in each. Neighbouring rows would be four
// short runs that begin anew all the time: 12 to 20 GB/s where these give 30
// (Zen 4, one core, rows of 1.6 to 5 KB, loads alone).
template <class Codes>
void Int8OneTokenRows(const Matrix& weight, uint8_t* x, float* y, size_t begin,
                      size_t end) {
  const size_t quarter = (end - begin) / kInt8Rows;
  for (size_t row = begin; row < begin + quarter; ++row) {
    Int8OneToken<Codes>(weight, Int8Group::Apart(row, quarter), x, y);
  }
  const size_t rest = begin + kInt8Rows * quarter;
  if (rest < end) Int8OneToken<Codes>(weight, Int8Group(rest, end), x, y);
}

template <class Codes>
HWY_INLINE void Int8RowRange(const Matrix& weight, const TokenRows& tokens,
                             size_t begin, size_t end) {
  const auto rows_of = [&](size_t first, size_t count) {
    return TokenRows{
        .y = tokens.y + first, .tokens = count, .x8 = tokens.x8 + first};
  };
#if HWY_TARGET == HWY_AVX3_DL
  if (tokens.tokens > kMaxFewTokens) {
    for (size_t t = 0; t < tokens.tokens; t += kInt8TileBlock) {
      const size_t count = std::min(kInt8TileBlock, tokens.tokens - t);
      Int8Tiles<Codes>(weight, rows_of(t, count), begin, end);
    }
    return;
  }
#endif
  const size_t block = Int8TokenBlock(weight.cols);
  for (size_t t = 0; t < tokens.tokens; t += block) {
    const size_t count = std::min(block, tokens.tokens - t);
    if (count == 1) {
      Int8OneTokenRows<Codes>(weight, tokens.x8[t], tokens.y[t], begin, end);
      continue;
    }
    for (size_t row = begin; row < end; row += kInt8Rows) {
      Int8Panel<Codes>(weight, Int8Group(row, end), rows_of(t, count));
    }
  }
}

#else

struct NoCodes {};

// Weights to fp32, times the codes, block by block.
template <class Codes>
HWY_INLINE void Int8RowRange(const Matrix& weight, const TokenRows& tokens,
                             size_t begin, size_t end) {
  struct PlainRow;
  float* const w = ThreadScratch<PlainRow>(weight.cols);
  for (size_t row = begin; row < end; ++row) {
    DequantizeRow(weight, row, w);
    for (size_t t = 0; t < tokens.tokens; ++t) {
      const Int8Row x = Int8RowAt(tokens.x8[t], weight.cols);
      float sum = 0;
      for (size_t c = 0; c < weight.cols; c += kInt8Block) {
        float dot = 0;
        for (size_t i = c; i < c + kInt8Block; ++i) dot += w[i] * x.codes[i];
        sum += dot * x.scales[c / kInt8Block];
      }
      tokens.y[t][row] = sum;
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
