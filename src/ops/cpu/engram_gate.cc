// Engram injection: one pass for the three sums of a stream, one to add. Bound
// by memory: streams twice, keys and value once. Streams are apart from each
// other, so that the threads share a single token as well.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/engram_gate.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// A vector of keys or values, of which bf16 streams take the rounded ones.
template <typename Stream, class Vector>
HWY_INLINE VF LoadFor(const Vector& vector, const float* p) {
  const VF v = vector.Load(p);
  return std::is_same_v<Stream, uint16_t> ? RoundBf16(v) : v;
}

// What a gate is computed from: sums over a stream h and its key.
struct GateSums {
  VF dot;  // h * q_weight * k_weight * key
  VF h2;
  VF key2;

  template <class Vector, typename Stream>
  HWY_INLINE void Add(const Vector& vector, const Stream* h, const float* q,
                      const float* k, const float* key) {
    const VF hv = vector.Load(h), kv = LoadFor<Stream>(vector, key);
    const VF weight = hn::Mul(vector.Load(q), vector.Load(k));
    dot = hn::MulAdd(hn::Mul(hv, kv), weight, dot);
    h2 = hn::MulAdd(hv, hv, h2);
    key2 = hn::MulAdd(kv, kv, key2);
  }
};

HWY_INLINE float InverseRms(VF a, VF b, size_t n, float eps) {
  const float mean = Sum(hn::Add(a, b)) / static_cast<float>(n);
  return 1.0f / std::sqrt(mean + eps);
}

// How much of the memory a stream h lets in, by its key.
template <typename Stream>
HWY_INLINE float Gate(const EngramGateArgs& args, size_t stream,
                      const Stream* h, const float* key) {
  const size_t dim = args.dim;
  const float* const q = args.q_weight + stream * dim;
  const float* const k = args.k_weight + stream * dim;
  const VF zero = hn::Zero(kF);
  GateSums a{zero, zero, zero}, b = a;  // two, to hide the latency of adding
  size_t i = 0;
  for (; i + 2 * kLanes <= dim; i += 2 * kLanes) {
    const size_t j = i + kLanes;
    a.Add(WholeVector(), h + i, q + i, k + i, key + i);
    b.Add(WholeVector(), h + j, q + j, k + j, key + j);
  }
  ForVectors(i, dim, [&](auto vector, size_t j) HWY_ATTR {
    a.Add(vector, h + j, q + j, k + j, key + j);
  });
  float dot = Sum(hn::Add(a.dot, b.dot));
  dot *= InverseRms(a.h2, b.h2, dim, args.eps) *
         InverseRms(a.key2, b.key2, dim, args.eps);
  dot /= std::sqrt(static_cast<float>(dim));
  const float root = std::sqrt(std::max(std::fabs(dot), 1e-6f));
  const VF gate = Sigmoid(hn::Set(kF, std::copysign(root, dot)), args.sigmoid);
  return hn::GetLane(gate);
}

// h += gate * value
template <typename Stream>
HWY_INLINE void AddScaled(const float* value, float gate, size_t n, Stream* h) {
  const VF g = hn::Set(kF, gate);
  ForVectors(0, n, [&](auto vector, size_t i) HWY_ATTR {
    const VF v = LoadFor<Stream>(vector, value + i);
    const VF sum = hn::MulAdd(g, v, vector.Load(h + i));
    vector.Store(std::is_same_v<Stream, uint16_t> ? RoundBf16(sum) : sum,
                 h + i);
  });
}

// Streams [begin, end) of all tokens, counted through.
template <typename Stream>
HWY_INLINE void InjectInto(const EngramGateArgs& args, size_t begin,
                           size_t end) {
  const size_t dim = args.dim;
  for (size_t i = begin; i < end; ++i) {
    const size_t token = i / args.streams, s = i % args.streams;
    const float* const keys = args.kv + token * (args.streams + 1) * dim;
    const bool shut = args.shut != nullptr && args.shut[token] != 0;
    Stream* const h = static_cast<Stream*>(args.h.data) + i * dim;
    const float gate = shut ? 0.0f : Gate(args, s, h, keys + s * dim);
    if (args.gate != nullptr) args.gate[i] = gate;
    if (!shut) AddScaled(keys + args.streams * dim, gate, dim, h);
  }
}

void InjectRange(const EngramGateArgs& args, size_t begin, size_t end) {
  if (args.h.is_bf16()) return InjectInto<uint16_t>(args, begin, end);
  InjectInto<float>(args, begin, end);
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
  pool.ParallelFor(args.tokens * args.streams, GrainFor(8 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(InjectRange)(args, begin, end);
                   });
}

}  // namespace ecphory
#endif
