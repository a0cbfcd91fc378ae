// Engram injection: one pass for the three sums of a stream, one to add.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/engram_gate.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <cmath>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// sum of a[i] * b[i] * c[i] * d[i] in an order that depends on n only.
HWY_INLINE float SumProducts4(const float* a, const float* b, const float* c,
                              const float* d, size_t n) {
  VF sums[2] = {hn::Zero(kF), hn::Zero(kF)};
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    for (size_t k = 0; k < 2; ++k) {
      const size_t j = i + k * kLanes;
      const VF ab = hn::Mul(Load(a + j), Load(b + j));
      const VF cd = hn::Mul(Load(c + j), Load(d + j));
      sums[k] = hn::MulAdd(ab, cd, sums[k]);
    }
  }
  for (; i < n; i += kLanes) {
    const size_t rest = std::min(kLanes, n - i);
    const auto load = [&](const float* p) HWY_ATTR {
      return rest == kLanes ? Load(p + i) : LoadPartial(p + i, rest);
    };
    sums[0] = hn::MulAdd(hn::Mul(load(a), load(b)), hn::Mul(load(c), load(d)),
                         sums[0]);
  }
  return Sum(hn::Add(sums[0], sums[1]));
}

HWY_INLINE float InverseRms(const float* x, size_t n, float eps) {
  return 1.0f / std::sqrt(SumSquares(x, n) / static_cast<float>(n) + eps);
}

// How much of the memory a stream h lets in, by its key.
HWY_INLINE float Gate(const EngramGateArgs& args, size_t stream, const float* h,
                      const float* key) {
  const size_t dim = args.dim;
  float dot = SumProducts4(h, args.q_weight + stream * dim,
                           args.k_weight + stream * dim, key, dim);
  dot *= InverseRms(h, dim, args.eps) * InverseRms(key, dim, args.eps);
  dot /= std::sqrt(static_cast<float>(dim));
  const float root = std::sqrt(std::max(std::fabs(dot), 1e-6f));
  const VF gate = Sigmoid(hn::Set(kF, std::copysign(root, dot)), args.sigmoid);
  return hn::GetLane(gate);
}

// h += gate * value
HWY_INLINE void AddScaled(const float* value, float gate, size_t n, float* h) {
  const VF g = hn::Set(kF, gate);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(hn::MulAdd(g, Load(value + i), Load(h + i)), h + i);
  }
  if (i < n) {
    const VF sum =
        hn::MulAdd(g, LoadPartial(value + i, n - i), LoadPartial(h + i, n - i));
    StorePartial(sum, h + i, n - i);
  }
}

void InjectToken(const EngramGateArgs& args, size_t token) {
  const size_t dim = args.dim;
  const float* const keys = args.kv + token * (args.streams + 1) * dim;
  const float* const value = keys + args.streams * dim;
  const bool shut = args.shut != nullptr && args.shut[token] != 0;
  for (size_t s = 0; s < args.streams; ++s) {
    float* const h = args.h + (token * args.streams + s) * dim;
    const float gate = shut ? 0.0f : Gate(args, s, h, keys + s * dim);
    if (args.gate != nullptr) args.gate[token * args.streams + s] = gate;
    if (!shut) AddScaled(value, gate, dim, h);
  }
}

void InjectRange(const EngramGateArgs& args, size_t begin, size_t end) {
  for (size_t t = begin; t < end; ++t) InjectToken(args, t);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(InjectRange);
}  // namespace

void CpuEngramGate(const EngramGateArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.tokens, GrainFor(8 * args.streams * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(InjectRange)(args, begin, end);
                   });
}

}  // namespace ecphory
#endif
