// q . k by DotBlock, softmax per head, then the weighted sum with heads and
// channels blocked in registers.
#include "ops/cpu/attention_token.h"

#include <algorithm>
#include <cmath>

#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/attention_token.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"
#include "ops/cpu/dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// scores[head][row] = q_head . row
void Scores(const TokenAttention& a) {
  for (size_t row = 0; row < a.count; row += kRowBlock) {
    const size_t rows = std::min(kRowBlock, a.count - row);
    const float* block[kRowBlock];
    for (size_t r = 0; r < kRowBlock; ++r) {
      block[r] = a.rows[row + std::min(r, rows - 1)];
    }
    for (size_t head = 0; head < a.heads; head += kVectorBlock) {
      const size_t heads = std::min(kVectorBlock, a.heads - head);
      const float* q[kVectorBlock];
      float sums[kVectorBlock * kRowBlock];
      for (size_t h = 0; h < heads; ++h) q[h] = a.q + (head + h) * a.dim;
      DotUpTo(heads, block, q, a.dim, sums);
      for (size_t h = 0; h < heads; ++h) {
        std::memcpy(a.scores + (head + h) * a.count + row, sums + h * kRowBlock,
                    rows * sizeof(float));
      }
    }
  }
}

HWY_INLINE float MaxOf(const float* x, size_t n, float start) {
  VF top = hn::Set(kF, start);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) top = hn::Max(top, Load(x + i));
  float result = hn::GetLane(hn::MaxOfLanes(kF, top));
  for (; i < n; ++i) result = std::max(result, x[i]);
  return result;
}

// x[i] = exp(x[i] * scale - top); returns their sum.
HWY_INLINE float ExpRow(float* x, size_t n, float scale, float top) {
  const VF scale_v = hn::Set(kF, scale);
  const VF top_v = hn::Set(kF, top);
  VF sum = hn::Zero(kF);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF e = Exp(hn::MulSub(Load(x + i), scale_v, top_v));
    Store(e, x + i);
    sum = hn::Add(sum, e);
  }
  if (i < n) {
    const VF e = Exp(hn::MulSub(LoadPartial(x + i, n - i), scale_v, top_v));
    StorePartial(e, x + i, n - i);
    sum = hn::Add(sum, LoadPartial(x + i, n - i));
  }
  return Sum(sum);
}

// Turns the scores of a head into weights; the sink joins the denominator only.
void Softmax(const TokenAttention& a, size_t head) {
  float* const scores = a.scores + head * a.count;
  const float sink = a.sink[head];
  // scale > 0, so the largest product comes from the largest score.
  const float top = std::max(sink, a.scale * MaxOf(scores, a.count, scores[0]));
  const float sum = ExpRow(scores, a.count, a.scale, top);
  const float factor = 1.0f / (sum + std::exp(sink - top));
  for (size_t i = 0; i < a.count; ++i) scores[i] *= factor;
}

// out[head + h][i ...] = sum over rows of weight * row, for kHeads heads and
// kVectors vectors of channels.
template <size_t kHeads, size_t kVectors>
HWY_INLINE void SumBlock(const TokenAttention& a, size_t head, size_t i) {
  const float* const weights = a.scores + head * a.count;
  VF acc[kHeads][kVectors];
#pragma GCC unroll 8
  for (size_t h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) acc[h][v] = hn::Zero(kF);
  }
  for (size_t row = 0; row < a.count; ++row) {
    VF values[kVectors];
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      values[v] = Load(a.rows[row] + i + v * kLanes);
    }
#pragma GCC unroll 8
    for (size_t h = 0; h < kHeads; ++h) {
      const VF w = hn::Set(kF, weights[h * a.count + row]);
#pragma GCC unroll 8
      for (size_t v = 0; v < kVectors; ++v) {
        acc[h][v] = hn::MulAdd(w, values[v], acc[h][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (size_t h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      Store(acc[h][v], a.out + (head + h) * a.dim + i + v * kLanes);
    }
  }
}

// The channels of one head that fill no whole vector.
HWY_INLINE void SumTail(const TokenAttention& a, size_t head, size_t i) {
  const size_t n = a.dim - i;
  VF acc = hn::Zero(kF);
  for (size_t row = 0; row < a.count; ++row) {
    const VF w = hn::Set(kF, a.scores[head * a.count + row]);
    acc = hn::MulAdd(w, LoadPartial(a.rows[row] + i, n), acc);
  }
  StorePartial(acc, a.out + head * a.dim + i, n);
}

template <size_t kHeads>
HWY_INLINE void SumHeads(const TokenAttention& a, size_t head) {
  size_t i = 0;
  for (; i + 4 * kLanes <= a.dim; i += 4 * kLanes) {
    SumBlock<kHeads, 4>(a, head, i);
  }
  for (; i + kLanes <= a.dim; i += kLanes) SumBlock<kHeads, 1>(a, head, i);
  if (i == a.dim) return;
  for (size_t h = 0; h < kHeads; ++h) SumTail(a, head + h, i);
}

void AttendTokenHwy(const TokenAttention& a) {
  Scores(a);
  for (size_t head = 0; head < a.heads; ++head) Softmax(a, head);
  // Two heads of four vectors fit 16 registers as well as 32.
  size_t head = 0;
  for (; head + 2 <= a.heads; head += 2) SumHeads<2>(a, head);
  if (head < a.heads) SumHeads<1>(a, head);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {
HWY_EXPORT(AttendTokenHwy);
}  // namespace

void AttendToken(const TokenAttention& token) {
  HWY_DYNAMIC_DISPATCH(AttendTokenHwy)(token);
}

}  // namespace ecphory
#endif
