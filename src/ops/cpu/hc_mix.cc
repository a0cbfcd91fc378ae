// Hyper-connection coefficients: fn . z, then sigmoids and Sinkhorn for kLanes
// tokens at a time, one token a lane.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/hc_mix.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <cmath>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// Up to kLanes tokens of `m` [tokens, width], normalised: z = m * rsqrt(mean
// h^2
// + eps), where a row of h holds `n` values.
class Logits {
 public:
  Logits(const float* h, size_t n, float norm_eps, const float* m, size_t width,
         size_t tokens)
      : m_(m), width_(width), tokens_(tokens) {
    float factors[kLanes] = {};
    for (size_t t = 0; t < tokens; ++t) {
      const float mean = SumSquares(h + t * n, n) / static_cast<float>(n);
      factors[t] = 1.0f / std::sqrt(mean + norm_eps);
    }
    factors_ = Load(factors);
  }

  // m[column] * scale + base, one token a lane; unused lanes hold `base`.
  VF Get(size_t column, float scale, float base) const {
    float values[kLanes] = {};
    for (size_t t = 0; t < tokens_; ++t) values[t] = m_[t * width_ + column];
    const VF normalised = hn::Mul(Load(values), factors_);
    return hn::MulAdd(normalised, hn::Set(kF, scale), hn::Set(kF, base));
  }

 private:
  const float* m_;
  size_t width_;
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
  sum = hn::Add(sum, eps);
  for (size_t i = 0; i < streams; ++i) {
    c[i * stride] = hn::Div(c[i * stride], sum);
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

void MixTokens(const HcSplitArgs& args, const float* m, size_t first,
               size_t tokens) {
  const size_t streams = args.streams;
  const size_t row = streams * args.dim;
  const size_t width = (2 + streams) * streams;
  const Logits logits(args.h + first * row, row, args.norm_eps,
                      m + first * width, width, tokens);
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

void MixRange(const HcSplitArgs& args, const float* m, size_t begin,
              size_t end) {
  for (size_t t = begin; t < end; t += kLanes) {
    MixTokens(args, m, t, std::min(kLanes, end - t));
  }
}

void HeadRange(const HcHeadArgs& args, const float* m, size_t begin,
               size_t end) {
  const size_t streams = args.streams;
  const size_t row = streams * args.dim;
  for (size_t t = begin; t < end; t += kLanes) {
    const size_t tokens = std::min(kLanes, end - t);
    const Logits logits(args.h + t * row, row, args.norm_eps, m + t * streams,
                        streams, tokens);
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

HWY_EXPORT(MixRange);
HWY_EXPORT(HeadRange);

// fn . concat(h) for every token, not yet normalised: the factor is per token
// and commutes.
const float* RawLogits(const Matrix& fn, const float* h, size_t tokens,
                       ThreadPool& pool) {
  struct Purpose;
  float* const m = ThreadScratch<Purpose>(tokens * fn.rows);
  CpuMatmul({.weight = fn, .x = h, .y = m, .tokens = tokens}, pool);
  return m;
}

}  // namespace

void CpuHcSplit(const HcSplitArgs& args, ThreadPool& pool) {
  if (args.y != nullptr) {
    CpuHcExpand({.y = args.y,
                 .post = args.last_post,
                 .comb = args.last_comb,
                 .tokens = args.tokens,
                 .streams = args.streams,
                 .dim = args.dim,
                 .round_bf16 = args.round_bf16,
                 .h = args.h},
                pool);
  }
  const auto collapse = [&](const float* pre) {
    CpuHcCollapse({.h = args.h,
                   .pre = pre,
                   .tokens = args.tokens,
                   .streams = args.streams,
                   .dim = args.dim,
                   .round_bf16 = args.round_bf16,
                   .x = args.x},
                  pool);
  };
  if (args.collapse_pre != nullptr) collapse(args.collapse_pre);
  const float* const m = RawLogits(args.fn, args.h, args.tokens, pool);
  pool.ParallelFor(args.tokens, GrainFor(args.streams * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(MixRange)(args, m, begin, end);
                   });
  if (args.collapse_pre == nullptr) collapse(args.pre);
  CpuRmsNorm({.x = args.x,
              .weight = args.norm_weight,
              .y = args.x,
              .rows = args.tokens,
              .dim = args.dim,
              .eps = args.norm_eps},
             pool);
  if (args.round_bf16) {
    CpuRoundBf16({.x = args.x, .count = args.tokens * args.dim}, pool);
  }
}

void CpuHcHead(const HcHeadArgs& args, ThreadPool& pool) {
  const float* const m = RawLogits(args.fn, args.h, args.tokens, pool);
  pool.ParallelFor(args.tokens, GrainFor(args.streams * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(HeadRange)(args, m, begin, end);
                   });
}

}  // namespace ecphory
#endif
