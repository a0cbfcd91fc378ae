// Many tokens: bound by multiply-adds. A block of 6 tokens' inputs meets every
// row of the panel, 4 rows at a time, with 24 accumulators that stay in
// registers along the whole row; inputs and rows stream out of L2 (27 bytes a
// cycle at 24 multiply-adds, of 64 that it gives).
#include "ops/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/gemm.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

static_assert(kRowBlock == kMatmulRowBlock);

template <size_t kVectors>
HWY_INLINE void MultiplyVectors(const Panel& panel, const float* const* x,
                                float* const* y) {
  const size_t stride = PanelStride(panel.cols);
  const float* row = panel.values;
  for (size_t r = 0; r < panel.rows; r += kRowBlock, row += 4 * stride) {
    const float* const rows[kRowBlock] = {row, row + stride, row + 2 * stride,
                                          row + 3 * stride};
    float sums[kVectors * kRowBlock];
    DotBlock<kVectors>(rows, x, panel.cols, sums);
    StoreSums<kVectors>(sums, y, panel.first_row + r, panel.rows - r);
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
