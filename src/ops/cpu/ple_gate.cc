// Injection of a per-layer n-gram table in two passes: the gates, apart for
// each token and stream, then convolution and addition, in the tokens' order
// but apart for each channel.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/ple_gate.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <cmath>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/ple_gate.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// sum of key * (1 + key_weight) * x * (1 + query_weight) in an order that
// depends on n only.
HWY_INLINE float WeightedDot(const float* key, const float* key_weight,
                             const float* x, const float* query_weight,
                             size_t n) {
  const VF one = hn::Set(kF, 1.0f);
  VF sums[2] = {hn::Zero(kF), hn::Zero(kF)};
  const auto add = [&](auto vector, size_t i, VF* sum) HWY_ATTR {
    const VF k = hn::Mul(vector.Load(key + i),
                         hn::Add(one, vector.Load(key_weight + i)));
    const VF q = hn::Mul(vector.Load(x + i),
                         hn::Add(one, vector.Load(query_weight + i)));
    *sum = hn::MulAdd(k, q, *sum);
  };
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    add(WholeVector(), i, &sums[0]);
    add(WholeVector(), i + kLanes, &sums[1]);
  }
  for (; i + kLanes <= n; i += kLanes) add(WholeVector(), i, &sums[0]);
  if (i < n) add(PartialVector{n - i}, i, &sums[0]);
  return Sum(hn::Add(sums[0], sums[1]));
}

HWY_INLINE float InverseRms(float mean_square, float eps) {
  return 1.0f / std::sqrt(mean_square + eps);
}

HWY_INLINE float MeanSquare(const float* x, size_t n) {
  return SumSquares(x, n) / static_cast<float>(n);
}

HWY_INLINE float Gate(const PleGateArgs& args, size_t stream, const float* x,
                      const float* key) {
  const size_t dim = args.dim;
  float dot = WeightedDot(key, args.key_weight + stream * dim, x,
                          args.query_weight + stream * dim, dim);
  dot *= InverseRms(MeanSquare(key, dim), args.eps) *
         InverseRms(MeanSquare(x, dim), args.eps);
  dot /= std::sqrt(static_cast<float>(dim));
  if (dot == 0) return 0.5f;
  const float root = std::sqrt(std::max(std::fabs(dot), 1e-6f));
  return hn::GetLane(
      Sigmoid(hn::Set(kF, std::copysign(root, dot)), SigmoidForm::kExp));
}

// What the second pass needs of tokens [begin, end): `gates` and `norms`.
void GateRange(const PleGateArgs& args, size_t begin, size_t end,
               PleGateScales* scales) {
  for (size_t t = begin; t < end; ++t) {
    const bool shut = args.shut != nullptr && args.shut[t] != 0;
    const float square =
        shut ? 0 : MeanSquare(args.value + t * args.dim, args.dim);
    for (size_t s = 0; s < args.streams; ++s) {
      const size_t at = t * args.streams + s;
      const float gate = shut ? 0.0f
                              : Gate(args, s, args.x + at * args.dim,
                                     args.key + at * args.dim);
      if (args.gate != nullptr) args.gate[at] = gate;
      scales[at] = {
          gate,
          shut ? 0.0f : gate * InverseRms(gate * gate * square, args.eps)};
    }
  }
}

// Channels [i, i + lanes of Vector) of stream s through all tokens.
template <class Vector>
HWY_INLINE void ConvolveChannels(const PleGateArgs& args, size_t s, size_t i,
                                 Vector vector, const float* taps,
                                 const PleGateScales* scales) {
  const size_t channels = args.streams * args.dim;
  const size_t channel = s * args.dim + i;
  const size_t last = args.kernel - 1;
  const VF norm_weight =
      hn::Add(hn::Set(kF, 1.0f), vector.Load(args.conv_norm_weight + channel));
  for (size_t t = 0; t < args.tokens; ++t) {
    const size_t position = args.position + t;
    float* const state =
        args.state_rows == 0
            ? nullptr
            : args.state + position % args.state_rows * channels + channel;
    if (args.shut != nullptr && args.shut[t] != 0) {
      if (state != nullptr) vector.Store(hn::Zero(kF), state);
      continue;
    }
    const PleGateScales& scale = scales[t * args.streams + s];
    const VF value = vector.Load(args.value + t * args.dim + i);
    const VF input =
        hn::Mul(hn::Mul(value, hn::Set(kF, scale.norm)), norm_weight);
    VF sum = hn::Mul(Load(taps + last * kLanes), input);
    for (size_t j = 0; j < last; ++j) {
      const size_t back = (last - j) * args.dilation;
      if (back > position) continue;
      const size_t row = (position - back) % args.state_rows;
      sum = hn::MulAdd(Load(taps + j * kLanes),
                       vector.Load(args.state + row * channels + channel), sum);
    }
    if (state != nullptr) vector.Store(input, state);
    float* const x = args.x + t * channels + channel;
    const VF silu = hn::Mul(sum, Sigmoid(sum, SigmoidForm::kExp));
    const VF u = hn::Mul(value, hn::Set(kF, scale.gate));
    vector.Store(hn::Add(vector.Load(x), hn::Add(u, silu)), x);
  }
}

// Channels [begin, end) of all streams' together. `taps` holds kernel vectors.
void ConvolveRange(const PleGateArgs& args, size_t begin, size_t end,
                   const PleGateScales* scales, float* taps) {
  while (begin < end) {
    const size_t s = begin / args.dim, i = begin % args.dim;
    const size_t n = std::min({kLanes, end - begin, args.dim - i});
    for (size_t j = 0; j < args.kernel; ++j) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        taps[j * kLanes + lane] =
            lane < n ? args.conv_weight[(begin + lane) * args.kernel + j] : 0;
      }
    }
    if (n == kLanes) {
      ConvolveChannels(args, s, i, WholeVector(), taps, scales);
    } else {
      ConvolveChannels(args, s, i, PartialVector{n}, taps, scales);
    }
    begin += n;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(GateRange);
HWY_EXPORT(ConvolveRange);

constexpr size_t kMaxLanes = 16;
struct ScalesScratch {};
struct TapsScratch {};
}  // namespace

void CpuPleGate(const PleGateArgs& args, ThreadPool& pool) {
  PleGateScales* const scales =
      ThreadScratch<ScalesScratch, PleGateScales>(args.tokens * args.streams);
  pool.ParallelFor(args.tokens, GrainFor(8 * args.streams * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(GateRange)(args, begin, end, scales);
                   });
  pool.ParallelFor(
      args.streams * args.dim, GrainFor((args.kernel + 8) * args.tokens),
      [&](size_t begin, size_t end, size_t) {
        float* const taps = ThreadScratch<TapsScratch>(args.kernel * kMaxLanes);
        HWY_DYNAMIC_DISPATCH(ConvolveRange)(args, begin, end, scales, taps);
      });
}

}  // namespace ecphory
#endif
