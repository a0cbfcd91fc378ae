// RMS norm of one row; compiled once per Highway target.
#if defined(ECPHORY_OPS_CPU_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_RMS_NORM_INL_H_
#undef ECPHORY_OPS_CPU_RMS_NORM_INL_H_
#else
#define ECPHORY_OPS_CPU_RMS_NORM_INL_H_
#endif

#include <cmath>

#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

// y = weight * x * rsqrt(mean(x^2) + eps), rounded to bf16 with kRound; y may
// be x, a null weight is all ones. Two passes, the second from L1.
template <bool kRound>
HWY_INLINE void NormRow(const float* x, const float* weight, float eps,
                        size_t dim, float* y) {
  const float mean = SumSquares(x, dim) / static_cast<float>(dim);
  const VF factor = hn::Set(kF, 1.0f / std::sqrt(mean + eps));
  const VF one = hn::Set(kF, 1.0f);
  ForVectors(0, dim, [&](auto vector, size_t i) HWY_ATTR {
    const VF w = weight != nullptr ? vector.Load(weight + i) : one;
    const VF out = hn::Mul(w, hn::Mul(vector.Load(x + i), factor));
    vector.Store(kRound ? RoundBf16(out) : out, y + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
