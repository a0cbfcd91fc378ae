#include "ops/cpu/highway_config.h"
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

// The pooled values of kLanes channels from channel c on; `load` reads them.
template <class Load>
HWY_INLINE VF PoolChannels(const PoolGroupsArgs& args, uint64_t first, size_t c,
                           const Load& load) {
  const auto row = [&](size_t i) HWY_ATTR {
    return (first + i) % args.capacity * args.dim + c;
  };
  VF top = load(args.gate + row(0));
  for (size_t i = 1; i < args.ratio; ++i) {
    top = hn::Max(top, load(args.gate + row(i)));
  }
  VF weights = hn::Zero(kF);
  VF sum = hn::Zero(kF);
  for (size_t i = 0; i < args.ratio; ++i) {
    const VF weight = Exp(hn::Sub(load(args.gate + row(i)), top));
    weights = hn::Add(weights, weight);
    sum = hn::MulAdd(weight, load(args.kv + row(i)), sum);
  }
  return hn::Div(sum, weights);
}

void PoolRange(const PoolGroupsArgs& args, size_t begin, size_t end) {
  for (size_t g = begin; g < end; ++g) {
    const uint64_t first = (args.first_group + g) * args.ratio;
    float* const latent = args.latent + g * args.dim;
    size_t c = 0;
    for (; c + kLanes <= args.dim; c += kLanes) {
      const auto load = [](const float* p) HWY_ATTR { return Load(p); };
      Store(PoolChannels(args, first, c, load), latent + c);
    }
    if (c < args.dim) {
      const size_t rest = args.dim - c;
      const auto load = [rest](const float* p)
                            HWY_ATTR { return LoadPartial(p, rest); };
      StorePartial(PoolChannels(args, first, c, load), latent + c, rest);
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
