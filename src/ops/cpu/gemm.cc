// Many tokens: bound by multiply-adds. A block of 6 tokens' inputs meets every
// row of the panel, 4 rows at a time, with 24 accumulators that stay in
// registers along the row, or along a chunk of it.
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

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

static_assert(kRowBlock == kMatmulRowBlock);

// Values of rows and inputs that meet at a time. Whole rows stream out of the
// second-level cache, 53 bytes a cycle at two vectors of multiply-adds a cycle,
// of which Intel's gives fewer: there 6 inputs of so many values stay in the
// first-level cache, 12 of 48 KB, and panels take 21 bytes. AMD's do one vector
// a cycle and give 32.
size_t ChunkOf(size_t cols) {
  constexpr size_t kIntelChunk = 512;
  return kOnIntel ? kIntelChunk : cols;
}

// Where accumulators wait for the next chunk.
template <size_t kVectors>
struct KeptSums {
  using Sums = VF[kVectors][kRowBlock];
  template <class Body>
  static HWY_INLINE void ForEach(const Body& body) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (size_t r = 0; r < kRowBlock; ++r) body(v, r);
    }
  }
  HWY_INLINE void LoadTo(Sums& acc) const {
    ForEach([&](size_t v, size_t r)
                HWY_ATTR { acc[v][r] = Load(lanes[v][r]); });
  }
  HWY_INLINE void Keep(const Sums& acc) {
    ForEach([&](size_t v, size_t r)
                HWY_ATTR { Store(acc[v][r], lanes[v][r]); });
  }
  static HWY_INLINE void Clear(Sums& acc) {
    ForEach([&](size_t v, size_t r) HWY_ATTR { acc[v][r] = hn::Zero(kF); });
  }
  alignas(64) float lanes[kVectors][kRowBlock][kLanes];
};

// In DotBlock's order, whatever the chunk.
template <size_t kVectors>
HWY_INLINE void MultiplyVectors(const Panel& panel, const float* const* x,
                                float* const* y) {
  const size_t stride = PanelStride(panel.cols);
  const size_t chunk = ChunkOf(panel.cols);
  KeptSums<kVectors> kept[kMaxPanelRows / kRowBlock];
  for (size_t begin = 0; begin < panel.cols; begin += chunk) {
    const size_t end = std::min(panel.cols, begin + chunk);
    const float* row = panel.values;
    for (size_t r = 0; r < panel.rows; r += kRowBlock, row += 4 * stride) {
      const float* const rows[kRowBlock] = {row, row + stride, row + 2 * stride,
                                            row + 3 * stride};
      VF acc[kVectors][kRowBlock];
      if (begin == 0) {
        KeptSums<kVectors>::Clear(acc);
      } else {
        kept[r / kRowBlock].LoadTo(acc);
      }
      AddRange(rows, x, begin, end, acc);
      if (end < panel.cols) {
        kept[r / kRowBlock].Keep(acc);
      } else {
        float sums[kVectors * kRowBlock];
        AddLanes(acc, sums);
        StoreSums<kVectors>(sums, y, panel.first_row + r, panel.rows - r);
      }
    }
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
    MultiplyVectors<kVectors>(panel, tokens.x + t, tokens.y + t);
  }
}

void MultiplyPanelHwy(const Panel& panel, const TokenRows& tokens) {
  size_t t = 0;
  for (; t + kVectorBlock <= tokens.tokens; t += kVectorBlock) {
    MultiplyVectors<kVectorBlock>(panel, tokens.x + t, tokens.y + t);
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
}  // namespace

void MultiplyPanel(const Panel& panel, const TokenRows& tokens) {
  HWY_DYNAMIC_DISPATCH(MultiplyPanelHwy)(panel, tokens);
}

}  // namespace ecphory
#endif
