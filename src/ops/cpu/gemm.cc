// Many tokens: bound by multiply-adds. A block of 6 tokens' inputs (3 with 16
// registers) meets every row of the panel, 4 rows at a time, with 24 (12)
// accumulators that stay in registers along the row, or along a part of it.
#include "ops/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/gemm.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/dot-inl.h"
#include "ops/cpu/on_intel.h"
#include "ops/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

static_assert(kRowBlock == kMatmulRowBlock);

// With 32 registers panels have whole rows. For few tokens one block of rows,
// so that reading the next one's codes overlaps with this one's products. Else
// as many as stay in L1 if these are a few, or as many as stay in L2 together
// with the inputs of 6 tokens (half a megabyte of the 1 MB of Zen 4): more rows
// save reads of inputs that lie in L3.
//
// With 16 registers a step of 12 multiply-adds takes 7 vectors, 37 bytes a
// cycle, which is more than Zen 3 reads out of L2. Of 512 columns 3 inputs are
// 6 KB, which stay in L1, and a panel takes 21 bytes a cycle. With 48 rows, 96
// KB, inputs come out of L3, or of memory where others use it, at 1.3 bytes a
// cycle; whole rows of 5,120 values, of which 12 fit, want 5. Sums of 174
// tokens are 267 KB of 512.
constexpr size_t kFewTokens = 16;
constexpr size_t kMaxPanelRows = kManyRegisters ? 32 : 48;
constexpr size_t kPanelCols = 512;
constexpr size_t kMostTokens = kManyRegisters ? kMaxTokenBlock : 174;
static_assert(kMostTokens % kTokenStep == 0 && kMostTokens <= kMaxTokenBlock);

size_t PanelRows(size_t cols, size_t tokens) {
  constexpr size_t kL1Floats = 5 << 10;  // 20 of 32 KB
  constexpr size_t kL2Floats = 128 << 10;
  if (tokens <= kFewTokens) return kRowBlock;
  if (!kManyRegisters) return kMaxPanelRows;
  const size_t in_l1 = kL1Floats / PanelStride(cols);
  const size_t rows =
      in_l1 >= 2 * kRowBlock ? in_l1 : kL2Floats / PanelStride(cols);
  return std::clamp(rows / kRowBlock * kRowBlock, kRowBlock, kMaxPanelRows);
}

PanelShape ShapeOf(size_t cols, size_t tokens) {
  PanelShape shape;
  shape.most_tokens = TokenLimit(cols, kMostTokens);
  shape.tokens = TokenBlock(tokens, cols, kMostTokens);
  shape.rows = PanelRows(cols, tokens);
  shape.cols = kManyRegisters ? cols : std::min(cols, kPanelCols);
  if (shape.cols < cols) shape.sums = shape.tokens * shape.rows * kLanes;
  return shape;
}

// Columns of a panel that meet inputs at a time. Whole rows stream out of the
// second-level cache, 53 bytes a cycle at two vectors of multiply-adds a cycle,
// of which Intel's gives fewer: there 6 inputs of so many values stay in the
// first-level cache, 12 of 48 KB, and panels take 21 bytes. AMD's do one vector
// a cycle and give 32.
size_t ChunkOf(size_t cols) {
  constexpr size_t kIntelChunk = 512;
  return kManyRegisters && kOnIntel ? kIntelChunk : cols;
}

// Accumulators of a block of rows, and where they wait for the next columns.
template <size_t kVectors>
struct Accumulators {
  static constexpr size_t kFloats = kVectors * kRowBlock * kLanes;
  using Sums = VF[kVectors][kRowBlock];
  template <class Body>
  static HWY_INLINE void ForEach(const Body& body) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (size_t r = 0; r < kRowBlock; ++r) body(v, r);
    }
  }
  static HWY_INLINE void LoadFrom(const float* kept, Sums& acc) {
    ForEach([&](size_t v, size_t r)
                HWY_ATTR { acc[v][r] = Load(kept + Place(v, r)); });
  }
  static HWY_INLINE void Keep(const Sums& acc, float* kept) {
    ForEach([&](size_t v, size_t r)
                HWY_ATTR { Store(acc[v][r], kept + Place(v, r)); });
  }
  static HWY_INLINE void Clear(Sums& acc) {
    ForEach([&](size_t v, size_t r) HWY_ATTR { acc[v][r] = hn::Zero(kF); });
  }
  static constexpr size_t Place(size_t v, size_t r) {
    return (v * kRowBlock + r) * kLanes;
  }
};

// Asks for a part of the next tokens' inputs, as many lines as there are blocks
// of rows left to do it: the processor reads ahead along the inputs under way
// alone, and those are short.
template <size_t kVectors>
HWY_INLINE void AskForInputs([[maybe_unused]] const Panel& panel,
                             [[maybe_unused]] const float* const* x,
                             [[maybe_unused]] size_t row) {
#if HWY_ARCH_X86
  constexpr size_t kLineFloats = 64 / sizeof(float);
  const size_t step =
      CeilDiv(CeilDiv((panel.end - panel.begin) * kRowBlock, panel.rows),
              kLineFloats) *
      kLineFloats;
  const size_t first = panel.begin + row / kRowBlock * step;
  const size_t last = std::min(panel.end, first + step);
#pragma GCC unroll 8
  for (size_t v = 0; v < kVectors; ++v) {
    for (size_t i = first; i < last; i += kLineFloats) {
      _mm_prefetch(reinterpret_cast<const char*>(x[v] + i), _MM_HINT_T1);
    }
  }
#endif
}

// In DotBlock's order, however columns are cut. `sums` are these tokens'.
// `next`: as many tokens' inputs, which come next, or null.
template <size_t kVectors>
HWY_INLINE void MultiplyVectors(const Panel& panel, const float* const* x,
                                const float* const* next, float* sums,
                                float* const* y) {
  using Block = Accumulators<kVectors>;
  const size_t cols = panel.end - panel.begin;
  const size_t chunk = ChunkOf(cols);
  const float* inputs[kVectors];
  for (size_t v = 0; v < kVectors; ++v) inputs[v] = x[v] + panel.begin;
  for (size_t begin = 0; begin < cols; begin += chunk) {
    const size_t end = std::min(cols, begin + chunk);
    float* kept = sums;
    for (size_t r = 0; r < panel.rows; r += kRowBlock, kept += Block::kFloats) {
      if (next != nullptr) AskForInputs<kVectors>(panel, next, r);
      const float* const rows[kRowBlock] = {
          PanelRow(panel.values, cols, r), PanelRow(panel.values, cols, r + 1),
          PanelRow(panel.values, cols, r + 2),
          PanelRow(panel.values, cols, r + 3)};
      typename Block::Sums acc;
      if (panel.begin + begin == 0) {
        Block::Clear(acc);
      } else {
        Block::LoadFrom(kept, acc);
      }
      AddRange<kPanelSpread>(rows, inputs, begin, end, acc);
      if (panel.begin + end < panel.cols) {
        Block::Keep(acc, kept);
      } else {
        float lanes[kVectors * kRowBlock];
        AddLanes(acc, lanes);
        StoreSums<kVectors>(lanes, y, panel.first_row + r, panel.rows - r);
      }
    }
  }
}

// The tokens from t on, kVectors of them.
template <size_t kVectors>
HWY_INLINE void MultiplyTokensFrom(const Panel& panel, const TokenRows& tokens,
                                   size_t t) {
  const float* const* const x = tokens.x + t;
  float* const* const y = tokens.y + t;
  if constexpr (kManyRegisters) {
    alignas(64) float kept[kMaxPanelRows * kVectors * kLanes];
    MultiplyVectors<kVectors>(panel, x, nullptr, kept, y);
  } else {
    // Inputs of few tokens stay in the second-level cache.
    const bool more =
        panel.rows > kRowBlock && t + 2 * kVectors <= tokens.tokens;
    MultiplyVectors<kVectors>(panel, x, more ? x + kVectors : nullptr,
                              panel.sums + t * panel.padded_rows() * kLanes, y);
  }
}

// The tokens from t on, at most kVectors.
template <size_t kVectors>
HWY_INLINE void MultiplyUpTo(const Panel& panel, const TokenRows& tokens,
                             size_t t) {
  if constexpr (kVectors > 0) {
    if (tokens.tokens - t < kVectors) {
      return MultiplyUpTo<kVectors - 1>(panel, tokens, t);
    }
    MultiplyTokensFrom<kVectors>(panel, tokens, t);
  }
}

void MultiplyPanelHwy(const Panel& panel, const TokenRows& tokens) {
  size_t t = 0;
  for (; t + kVectorBlock <= tokens.tokens; t += kVectorBlock) {
    MultiplyTokensFrom<kVectorBlock>(panel, tokens, t);
  }
  MultiplyUpTo<kVectorBlock - 1>(panel, tokens, t);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(MultiplyPanelHwy);
HWY_EXPORT(ShapeOf);
}  // namespace

PanelShape PanelShapeOf(size_t cols, size_t tokens) {
  return HWY_DYNAMIC_DISPATCH(ShapeOf)(cols, tokens);
}

void MultiplyPanel(const Panel& panel, const TokenRows& tokens) {
  HWY_DYNAMIC_DISPATCH(MultiplyPanelHwy)(panel, tokens);
}

}  // namespace ecphory
#endif
