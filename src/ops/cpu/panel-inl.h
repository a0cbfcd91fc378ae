// How the rows of a Panel lie in memory (gemm.h); compiled once per Highway
// target.
//
// With 16 registers a step of 12 multiply-adds takes vectors of 4 rows and 3
// inputs, more than the second-level cache of Zen 3 gives in that time, so that
// rows and inputs meet in chunks, of which the inputs' stays in the first-level
// cache. The rows' chunks would be four short runs, each in a page of its own,
// which the processor does not read ahead in time: there the vectors of the 4
// rows of a block lie in turn, as one run.
#if defined(ECPHORY_OPS_CPU_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_PANEL_INL_H_
#undef ECPHORY_OPS_CPU_PANEL_INL_H_
#else
#define ECPHORY_OPS_CPU_PANEL_INL_H_
#endif

#include <cstddef>

#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

constexpr bool kInterleavesRows = !kManyRegisters;

// Vectors from one of a row to its next.
constexpr size_t kPanelSpread = kInterleavesRows ? kMatmulRowBlock : 1;

// Where row `row` of a panel begins. A block of kMatmulRowBlock rows takes as
// many times PanelStride(cols) floats.
template <typename T>
HWY_INLINE T* PanelRow(T* values, size_t cols, size_t row) {
  const size_t stride = PanelStride(cols);
  if (!kInterleavesRows) return values + row * stride;
  const size_t in_block = row % kMatmulRowBlock;
  return values + (row - in_block) * stride + in_block * kLanes;
}

// A sink of decoded values (weight_decoder-inl.h) that stores a row there.
struct PanelSink {
  HWY_INLINE PanelSink At(size_t i) const { return {out + kPanelSpread * i}; }
  template <class V>
  HWY_INLINE void operator()(size_t i, V w) const {
    using D = hn::DFromV<V>;
    static_assert(!kInterleavesRows || hn::MaxLanes(D()) == kLanes);
    hn::StoreU(w, D(), out + kPanelSpread * i);
  }
  float* out;
};

// The `n` values of a row, stored there.
HWY_INLINE void StorePanelRow(const float* values, size_t n, float* out) {
  const PanelSink sink{out};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sink(i, Load(values + i));
  if (i < n) sink(i, LoadPartial(values + i, n - i));
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
