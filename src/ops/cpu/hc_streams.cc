// Hyper-connection streams: collapse to one, expand back. Bound by memory: each
// value of h is read once (and written once).
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/hc_streams.cc"
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

// kStreams > 0 is a stream count known to the compiler, so that the streams of
// a vector stay in registers; 0 takes `streams`.
template <size_t kStreams, class Vector>
HWY_INLINE void CollapseVector(const Vector& vector, const float* h,
                               const float* pre, size_t streams, size_t dim,
                               float* x) {
  const size_t n = kStreams != 0 ? kStreams : streams;
  VF sum = hn::Mul(hn::Set(kF, pre[0]), vector.Load(h));
  for (size_t s = 1; s < n; ++s) {
    sum = hn::MulAdd(hn::Set(kF, pre[s]), vector.Load(h + s * dim), sum);
  }
  vector.Store(sum, x);
}

template <size_t kStreams>
HWY_INLINE void CollapseToken(const float* h, const float* pre, size_t streams,
                              size_t dim, float* x) {
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    CollapseVector<kStreams>(WholeVector(), h + i, pre, streams, dim, x + i);
  }
  if (i < dim) {
    CollapseVector<kStreams>(PartialVector{dim - i}, h + i, pre, streams, dim,
                             x + i);
  }
}

template <size_t kStreams, class Vector>
HWY_INLINE void ExpandVector(const Vector& vector, const float* y,
                             const float* post, const float* comb,
                             size_t streams, size_t dim, float* h) {
  const size_t n = kStreams != 0 ? kStreams : streams;
  VF in[kStreams != 0 ? kStreams : kMaxStreams];
  for (size_t j = 0; j < n; ++j) in[j] = vector.Load(h + j * dim);
  const VF yv = vector.Load(y);
  for (size_t k = 0; k < n; ++k) {
    VF sum = hn::Mul(hn::Set(kF, post[k]), yv);
    for (size_t j = 0; j < n; ++j) {
      sum = hn::MulAdd(hn::Set(kF, comb[j * n + k]), in[j], sum);
    }
    vector.Store(sum, h + k * dim);
  }
}

template <size_t kStreams>
HWY_INLINE void ExpandToken(const float* y, const float* post,
                            const float* comb, size_t streams, size_t dim,
                            float* h) {
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    ExpandVector<kStreams>(WholeVector(), y + i, post, comb, streams, dim,
                           h + i);
  }
  if (i < dim) {
    ExpandVector<kStreams>(PartialVector{dim - i}, y + i, post, comb, streams,
                           dim, h + i);
  }
}

void CollapseRange(const HcCollapseArgs& args, size_t begin, size_t end) {
  const size_t streams = args.streams;
  for (size_t t = begin; t < end; ++t) {
    const float* const h = args.h + t * streams * args.dim;
    const float* const pre = args.pre + t * streams;
    float* const x = args.x + t * args.dim;
    if (streams == 4) {
      CollapseToken<4>(h, pre, 4, args.dim, x);
    } else {
      CollapseToken<0>(h, pre, streams, args.dim, x);
    }
  }
}

void ExpandRange(const HcExpandArgs& args, size_t begin, size_t end) {
  const size_t streams = args.streams;
  for (size_t t = begin; t < end; ++t) {
    const float* const y = args.y + t * args.dim;
    const float* const post = args.post + t * streams;
    const float* const comb = args.comb + t * streams * streams;
    float* const h = args.h + t * streams * args.dim;
    if (streams == 4) {
      ExpandToken<4>(y, post, comb, 4, args.dim, h);
    } else {
      ExpandToken<0>(y, post, comb, streams, args.dim, h);
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
HWY_EXPORT(CollapseRange);
HWY_EXPORT(ExpandRange);
}  // namespace

void CpuHcCollapse(const HcCollapseArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.tokens, GrainFor((args.streams + 1) * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(CollapseRange)(args, begin, end);
                   });
}

void CpuHcExpand(const HcExpandArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.tokens, GrainFor((2 * args.streams + 1) * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(ExpandRange)(args, begin, end);
                   });
}

}  // namespace ecphory
#endif
