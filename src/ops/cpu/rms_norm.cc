// y = w * x * rsqrt(mean(x^2) + eps): two passes over a row, the second from
// L1.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <cmath>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VF Scaled(VF x, VF factor, VF weight) {
  return hn::Mul(weight, hn::Mul(x, factor));
}

void NormRow(const float* x, const float* weight, float factor, size_t dim,
             float* y) {
  const VF f = hn::Set(kF, factor);
  const VF one = hn::Set(kF, 1.0f);
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const VF w = weight != nullptr ? Load(weight + i) : one;
    Store(Scaled(Load(x + i), f, w), y + i);
  }
  if (i < dim) {
    const size_t rest = dim - i;
    const VF w = weight != nullptr ? LoadPartial(weight + i, rest) : one;
    StorePartial(Scaled(LoadPartial(x + i, rest), f, w), y + i, rest);
  }
}

void RmsNormRows(const RmsNormArgs& args, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const float* const x = args.x + row * args.dim;
    const float mean = SumSquares(x, args.dim) / static_cast<float>(args.dim);
    NormRow(x, args.weight, 1.0f / std::sqrt(mean + args.eps), args.dim,
            args.y + row * args.dim);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(RmsNormRows);
}  // namespace

void CpuRmsNorm(const RmsNormArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.rows, GrainFor(2 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(RmsNormRows)(args, begin, end);
                   });
}

}  // namespace ecphory
#endif
