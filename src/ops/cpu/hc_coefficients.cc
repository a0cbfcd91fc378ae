// Hyper-connection coefficients: sigmoids and Sinkhorn for kLanes tokens at a
// time, one token a lane.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/hc_coefficients.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <cmath>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/hc_coefficients.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"
#include "tensor/float_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// Up to kLanes tokens' sums, normalised: z = sum * rsqrt(mean h^2 + eps), with
// the mean over `n` values.
class Logits {
 public:
  Logits(const HcSums& sums, size_t outputs, size_t n, float norm_eps,
         size_t tokens)
      : sums_(sums), tokens_(tokens) {
    float factors[kLanes] = {};
    for (size_t t = 0; t < tokens; ++t) {
      const float squares = sums.values[t * sums.stride + outputs];
      const float mean = squares / static_cast<float>(n);
      factors[t] = 1.0f / std::sqrt(mean + norm_eps);
    }
    factors_ = Load(factors);
  }

  // z[column] * scale + base, one token a lane; unused lanes hold `base`.
  VF Get(size_t column, float scale, float base) const {
    float values[kLanes] = {};
    for (size_t t = 0; t < tokens_; ++t) {
      values[t] = sums_.values[t * sums_.stride + column];
    }
    const VF normalised = hn::Mul(Load(values), factors_);
    return hn::MulAdd(normalised, hn::Set(kF, scale), hn::Set(kF, base));
  }

 private:
  HcSums sums_;
  size_t tokens_;
  VF factors_;
};

// out[t * width + column] = lane t of v.
HWY_INLINE void Scatter(VF v, size_t tokens, size_t width, float* out) {
  float values[kLanes];
  Store(v, values);
  for (size_t t = 0; t < tokens; ++t) out[t * width] = values[t];
}

// c[i * stride] /= sum over i (+ eps), for one row or column of comb.
HWY_INLINE void Normalise(VF* c, size_t stride, size_t streams, VF eps) {
  VF sum = c[0];
  for (size_t i = 1; i < streams; ++i) sum = hn::Add(sum, c[i * stride]);
  // One division: 20 iterations of them are most of a lone token's time.
  const VF factor = hn::Div(hn::Set(kF, 1.0f), hn::Add(sum, eps));
  for (size_t i = 0; i < streams; ++i) {
    c[i * stride] = hn::Mul(c[i * stride], factor);
  }
}

// Softmax over one row of comb, plus eps.
HWY_INLINE void SoftmaxRow(VF* c, size_t streams, VF eps) {
  VF top = c[0];
  for (size_t i = 1; i < streams; ++i) top = hn::Max(top, c[i]);
  VF sum = hn::Zero(kF);
  for (size_t i = 0; i < streams; ++i) {
    c[i] = Exp(hn::Sub(c[i], top));
    sum = hn::Add(sum, c[i]);
  }
  for (size_t i = 0; i < streams; ++i) {
    c[i] = hn::Add(hn::Div(c[i], sum), eps);
  }
}

// comb [source][destination], one token a lane. A constant kStreams lets the
// compiler unroll the shipped case; 0 takes `streams`.
template <size_t kStreams>
HWY_INLINE void Sinkhorn(VF* comb, size_t streams, float hc_eps,
                         uint32_t iters) {
  const size_t n = kStreams != 0 ? kStreams : streams;
  const VF eps = hn::Set(kF, hc_eps);
  for (size_t j = 0; j < n; ++j) SoftmaxRow(comb + j * n, n, eps);
  for (size_t k = 0; k < n; ++k) Normalise(comb + k, n, n, eps);
  for (uint32_t i = 1; i < iters; ++i) {
    for (size_t j = 0; j < n; ++j) Normalise(comb + j * n, 1, n, eps);
    for (size_t k = 0; k < n; ++k) Normalise(comb + k, n, n, eps);
  }
}

void MixTokens(const HcSplitArgs& args, const HcSums& sums, size_t first,
               size_t tokens) {
  const size_t streams = args.streams;
  const Logits logits(sums, (2 + streams) * streams, streams * args.dim,
                      args.norm_eps, tokens);
  for (size_t s = 0; s < streams; ++s) {
    const VF pre =
        Sigmoid(logits.Get(s, args.scale[0], args.base[s]), args.sigmoid);
    Scatter(hn::Add(pre, hn::Set(kF, args.hc_eps)), tokens, streams,
            args.pre + first * streams + s);
    const VF post =
        Sigmoid(logits.Get(streams + s, args.scale[1], args.base[streams + s]),
                args.sigmoid);
    Scatter(hn::Add(post, post), tokens, streams,
            args.post + first * streams + s);
  }
  VF comb[kMaxStreams * kMaxStreams];
  const size_t pairs = streams * streams;
  for (size_t i = 0; i < pairs; ++i) {
    const size_t column = 2 * streams + i;
    comb[i] = logits.Get(column, args.scale[2], args.base[column]);
  }
  if (streams == 4) {
    Sinkhorn<4>(comb, 4, args.hc_eps, args.sinkhorn_iters);
  } else {
    Sinkhorn<0>(comb, streams, args.hc_eps, args.sinkhorn_iters);
  }
  for (size_t i = 0; i < pairs; ++i) {
    Scatter(comb[i], tokens, pairs, args.comb + first * pairs + i);
  }
}

void Coefficients(const HcSplitArgs& args, const HcSums& sums, size_t first,
                  size_t tokens) {
  for (size_t t = 0; t < tokens; t += kLanes) {
    MixTokens(args, {sums.values + t * sums.stride, sums.stride}, first + t,
              std::min(kLanes, tokens - t));
  }
}

// Completes the sums of tokens [begin, end) of fp32 streams and turns them into
// `pre`.
void HeadRange(const HcHeadArgs& args, float* sums, size_t begin, size_t end) {
  const float* const h = static_cast<const float*>(args.h.data);
  const size_t streams = args.streams, row = streams * args.dim;
  const size_t stride = streams + 1;
  for (size_t t = begin; t < end; t += kLanes) {
    const size_t tokens = std::min(kLanes, end - t);
    for (size_t i = t; i < t + tokens; ++i) {
      sums[i * stride + streams] = SumSquares(h + i * row, row);
    }
    const Logits logits({sums + t * stride, stride}, streams, row,
                        args.norm_eps, tokens);
    for (size_t s = 0; s < streams; ++s) {
      const VF pre =
          Sigmoid(logits.Get(s, args.scale[0], args.base[s]), args.sigmoid);
      Scatter(hn::Add(pre, hn::Set(kF, args.hc_eps)), tokens, streams,
              args.pre + t * streams + s);
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
HWY_EXPORT(Coefficients);
HWY_EXPORT(HeadRange);
}  // namespace

void HcCoefficients(const HcSplitArgs& args, const HcSums& sums, size_t first,
                    size_t tokens) {
  HWY_DYNAMIC_DISPATCH(Coefficients)(args, sums, first, tokens);
}

namespace {

void HeadOfF32(const HcHeadArgs& args, ThreadPool& pool) {
  struct Purpose;
  const size_t stride = args.streams + 1;
  float* const sums = ThreadScratch<Purpose>(args.tokens * stride);
  CpuMatmul({.weight = args.fn,
             .x = static_cast<const float*>(args.h.data),
             .y = sums,
             .tokens = args.tokens,
             .y_stride = stride},
            pool);
  pool.ParallelFor(args.tokens, GrainFor(args.streams * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(HeadRange)(args, sums, begin, end);
                   });
}

// Tokens of bf16 streams that are widened at a time: 1.3 MB of 4 x 5120.
constexpr size_t kWidened = 16;

}  // namespace

void CpuHcHead(const HcHeadArgs& args, ThreadPool& pool) {
  if (!args.h.is_bf16()) return HeadOfF32(args, pool);
  struct Purpose;
  const size_t row = args.streams * args.dim;
  float* const widened =
      ThreadScratch<Purpose>(std::min(args.tokens, kWidened) * row);
  const uint16_t* const h = static_cast<const uint16_t*>(args.h.data);
  for (size_t t = 0; t < args.tokens; t += kWidened) {
    HcHeadArgs part = args;
    part.tokens = std::min(kWidened, args.tokens - t);
    const uint16_t* const bits = h + t * row;
    pool.ParallelFor(
        part.tokens * row, GrainFor(2), [&](size_t begin, size_t end, size_t) {
          std::transform(bits + begin, bits + end, widened + begin, BF16ToF32);
        });
    part.h = widened;
    part.pre = args.pre + t * args.streams;
    HeadOfF32(part, pool);
  }
}

}  // namespace ecphory
#endif
