// Rotary position: the cosines and sines of a position are computed once and
// shared by all heads.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/rope.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <cmath>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"
#include "tensor/float_codec.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// x = (a, b), ... -> (a c - b s, b c + a s), ... with `cos` = (c, c), ... and
// `sin` = (-s, s), ..., rounded to bf16 with kRound.
template <bool kRound>
void RotatePairs(float* HWY_RESTRICT x, const float* HWY_RESTRICT cos,
                 const float* HWY_RESTRICT sin, size_t n) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + kLanes <= n; i += kLanes) {
    const VF v = Load(x + i);
    const VF swapped = hn::Reverse2(kF, v);
    const VF turned =
        hn::MulAdd(v, Load(cos + i), hn::Mul(swapped, Load(sin + i)));
    Store(kRound ? RoundBf16(turned) : turned, x + i);
  }
#endif
  for (; i < n; i += 2) {
    const float a = x[i];
    const float b = x[i + 1];
    x[i] = a * cos[i] + b * sin[i];
    x[i + 1] = b * cos[i + 1] + a * sin[i + 1];
    if (!kRound) continue;
    x[i] = RoundToBF16(x[i]);
    x[i + 1] = RoundToBF16(x[i + 1]);
  }
}

void RotateHeads(float* x, size_t heads, size_t dim, size_t rope_dim,
                 const float* cos, const float* sin, bool round) {
  const auto rotate = round ? RotatePairs<true> : RotatePairs<false>;
  for (size_t head = 0; head < heads; ++head) {
    rotate(x + head * dim + (dim - rope_dim), cos, sin, rope_dim);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(RotateHeads);

// The angle is the fp32 product by definition; its cosine and sine are taken in
// double, so that they are right to the last bit of a float at any position.
void FillTables(const RopeArgs& args, int64_t position, float* cos,
                float* sin) {
  const double sign = args.inverse ? -1.0 : 1.0;
  for (size_t i = 0; i < args.rope_dim / 2; ++i) {
    const float angle = static_cast<float>(position) * args.inv_freq[i];
    const float c = static_cast<float>(std::cos(double{angle}));
    const float s = static_cast<float>(sign * std::sin(double{angle}));
    cos[2 * i] = cos[2 * i + 1] = c;
    sin[2 * i] = -s;
    sin[2 * i + 1] = s;
  }
}

void RopeRange(const RopeArgs& args, size_t begin, size_t end) {
  struct Tables;
  float* const cos = ThreadScratch<Tables>(2 * args.rope_dim);
  float* const sin = cos + args.rope_dim;
  for (size_t t = begin; t < end; ++t) {
    FillTables(args, args.positions[t], cos, sin);
    HWY_DYNAMIC_DISPATCH(RotateHeads)
    (args.x + t * args.heads * args.dim, args.heads, args.dim, args.rope_dim,
     cos, sin, args.round_bf16);
  }
}

}  // namespace

void CpuRope(const RopeArgs& args, ThreadPool& pool) {
  // A cosine with its sine takes about as long as 256 multiply-adds.
  const size_t token_work = args.rope_dim * (128 + 2 * args.heads);
  pool.ParallelFor(
      args.tokens, GrainFor(token_work),
      [&](size_t begin, size_t end, size_t) { RopeRange(args, begin, end); });
}

}  // namespace ecphory
#endif
