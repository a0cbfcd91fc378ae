// y = w * x * rsqrt(mean(x^2) + eps), row by row.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

template <bool kRound>
void NormRows(const RmsNormArgs& args, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    NormRow<kRound>(args.x + row * args.dim, args.weight, args.eps, args.dim,
                    args.y + row * args.dim);
  }
}

void RmsNormRows(const RmsNormArgs& args, size_t begin, size_t end) {
  if (args.round_bf16) return NormRows<true>(args, begin, end);
  NormRows<false>(args, begin, end);
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
