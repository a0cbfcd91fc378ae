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
  size_t t = 0;
#if HWY_TARGET == HWY_AVX2
  if constexpr (StepsAreParts<Codes>()) {
    // As many as there are registers for.
    constexpr size_t kTokens = 2;
    for (; t + kTokens <= tokens.tokens; t += kTokens) {
      const Int8Row x[kTokens] = {Int8RowAt(tokens.x8[t], weight.cols),
                                  Int8RowAt(tokens.x8[t + 1], weight.cols)};
      float sums[kTokens][kInt8Rows];
      Int8DotTokens(panel.rows, x, weight.cols, sums);
      for (size_t i = 0; i < kTokens; ++i) {
        group.StoreSums(sums[i], tokens.y[t + i]);
      }
    }
  }
#endif
  for (; t < tokens.tokens; ++t) {
    float sums[kInt8Rows];
    Int8DotRows(panel.rows, Int8RowAt(tokens.x8[t], weight.cols), weight.cols,
                sums);
    group.StoreSums(sums, tokens.y[t]);
  }
}

#if HWY_TARGET == HWY_AVX3_DL

// Four rows of a format whose groups are two blocks and one step, two at a
// time, so that what they need stays in registers; their last blocks, if these
// have none to go with, are a group, of which both halves of the lanes meet the
// same inputs.
template <class Codes>
HWY_INLINE void Int8FourRows(const PackedRows& packed, const Int8Group& group,
                             const Int8Row& x, size_t cols, float* y) {
  constexpr size_t kGroup = Codes::kGroup;
  static_assert(kGroup == Codes::kSpan && !Codes::kMins);
  alignas(64) float sums[kInt8Rows * kLanes];
  for (size_t r = 0; r < kInt8Rows; r += 2) {
    Codes rows[2] = {Codes(packed.row(group.row(r))),
                     Codes(packed.row(group.row(r + 1)))};
    VF acc[2] = {hn::Zero(kF), hn::Zero(kF)};
    size_t c = 0;
    for (; c + kGroup <= cols; c += kGroup) {
      VF scales[2];
#pragma GCC unroll 2
      for (size_t i = 0; i < 2; ++i) {
        rows[i].Begin(c, kGroup);
        AskAhead<kAheadOfTwo>(rows[i].group, Codes::kAskedBytes);
        scales[i] = hn::Mul(rows[i].Scales(), Load(Codes::XScales(x, c)));
      }
      AddStep<true>(rows, x, c, 0, kGroup, scales, acc);
    }
    if (c < cols) {
      Codes both[1] = {rows[0]};
      both[0].BeginBlocks(rows[0].Block(c), rows[1].Block(c));
      const VF x_scales{
          _mm512_broadcast_f32x8(_mm256_loadu_ps(Codes::XScales(x, c)))};
      const VF scales[1] = {hn::Mul(both[0].Scales(), x_scales)};
      VF last[1] = {FirstHalves(acc[0], acc[1])};
      AddStep<true>(both, x, c, 0, kGroup, scales, last);
      StoreFirstHalves(last[0], acc[0], acc[1]);
    }
    Store(acc[0], sums + r * kLanes);
    Store(acc[1], sums + (r + 1) * kLanes);
  }
  float rows[kInt8Rows];
  StoreSums4(Load(sums), Load(sums + kLanes), Load(sums + 2 * kLanes),
             Load(sums + 3 * kLanes), rows);
  group.StoreSums(rows, y);
}

#endif

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

// In the order of ForFourRows(), written out for formats whose kernels GCC
// makes slower behind a lambda.
template <class Codes>
void Int8OneTokenRows(const Matrix& weight, uint8_t* x, float* y, size_t begin,
                      size_t end, size_t apart) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (requires(Codes codes) { codes.BeginBlocks(x, x); }) {
    const PackedRows rows(weight);
    const Int8Row row = Int8RowAt(x, weight.cols);
    return ForFourRows(begin, end, apart, [&](const Int8Group& group) HWY_ATTR {
      Int8FourRows<Codes>(rows, group, row, weight.cols, y);
    });
  }
#endif
  const FourRuns runs(begin, end, apart);
  for (size_t row = begin; row < runs.end; ++row) {
    Int8OneToken<Codes>(weight, Int8Group::Apart(row, runs.apart), x, y);
  }
  if (runs.rest < end) {
    Int8OneToken<Codes>(weight, Int8Group(runs.rest, end), x, y);
  }
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
    if (tokens.tokens <= kInt8TileBlock) {
      return Int8Tiles<Codes>(weight, tokens, begin, end);
    }
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
      Int8OneTokenRows<Codes>(weight, tokens.x8[t], tokens.y[t], begin, end,
                              tokens.apart);
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
void Int8RowRange(const Matrix& weight, const TokenRows& tokens, size_t begin,
                  size_t end) {
  if (tokens.apart != 0) {
    TokenRows run = tokens;
    run.apart = 0;
    for (size_t r = 0; r < kMatmulRowBlock; ++r) {
      Int8RowRange<Codes>(weight, run, begin + r * tokens.apart,
                          end + r * tokens.apart);
    }
    return;
  }
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
