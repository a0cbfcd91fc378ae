#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/compressor.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// Pools one vector of channels, from channel c on, of the group that starts at
// token `first`.
template <class Vector>
HWY_INLINE void PoolChannels(const Vector& vector, const PoolGroupsArgs& args,
                             uint64_t first, size_t c, float* latent) {
  VF top = vector.Load(args.gate + first % args.capacity * args.dim + c);
  for (size_t i = 1; i < args.ratio; ++i) {
    const size_t row = (first + i) % args.capacity;
    top = hn::Max(top, vector.Load(args.gate + row * args.dim + c));
  }
  VF weights = hn::Zero(kF);
  VF sum = hn::Zero(kF);
  for (size_t i = 0; i < args.ratio; ++i) {
    const size_t row = (first + i) % args.capacity;
    const VF gate = vector.Load(args.gate + row * args.dim + c);
    const VF weight = Exp(hn::Sub(gate, top));
    weights = hn::Add(weights, weight);
    sum = hn::MulAdd(weight, vector.Load(args.kv + row * args.dim + c), sum);
  }
  vector.Store(hn::Div(sum, weights), latent + c);
}

void PoolRange(const PoolGroupsArgs& args, size_t begin, size_t end) {
  for (size_t g = begin; g < end; ++g) {
    const uint64_t first = (args.first_group + g) * args.ratio;
    float* const latent = args.latent + g * args.dim;
    size_t c = 0;
    for (; c + kLanes <= args.dim; c += kLanes) {
      PoolChannels(WholeVector(), args, first, c, latent);
    }
    if (c < args.dim) {
      PoolChannels(PartialVector{args.dim - c}, args, first, c, latent);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(PoolRange);
}  // namespace

void CpuPoolGroups(const PoolGroupsArgs& args, ThreadPool& pool) {
  // An exponential takes about as long as 16 multiply-adds.
  pool.ParallelFor(args.groups, GrainFor(16 * args.ratio * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(PoolRange)(args, begin, end);
                   });
}

}  // namespace ecphory
#endif
