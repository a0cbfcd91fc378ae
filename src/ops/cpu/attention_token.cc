// out = softmax(scale * q . rows, sink) * rows in three steps: scores by
// DotBlock, softmax per head, then the weighted sum with heads and channels
// blocked in registers.
//
// Bound by arithmetic: two multiply-adds per head, row and channel, while a row
// is unpacked once (twice beyond the cache, attention.cc) for all heads.
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

// Up to kRowBlock rows against all heads from `head` on.
HWY_INLINE void ScoreRows(const AttentionScores& a, size_t row, size_t head,
                          size_t heads) {
  const size_t rows = std::min(kRowBlock, a.count - row);
  const float* block[kRowBlock];
  for (size_t r = 0; r < kRowBlock; ++r) {
    block[r] = a.rows[row + std::min(r, rows - 1)];
  }
  const float* q[kVectorBlock];
  float sums[kVectorBlock * kRowBlock];
  for (size_t h = 0; h < heads; ++h) q[h] = a.q + (head + h) * a.dim;
  DotUpTo(heads, block, q, a.dim, sums);
  for (size_t h = 0; h < heads; ++h) {
    std::memcpy(a.scores + (head + h) * a.score_stride + row,
                sums + h * kRowBlock, rows * sizeof(float));
  }
}

// The queries of a few heads stay in the first-level cache for all rows.
void Scores(const AttentionScores& a) {
  for (size_t head = 0; head < a.heads; head += kVectorBlock) {
    const size_t heads = std::min(kVectorBlock, a.heads - head);
    for (size_t row = 0; row < a.count; row += kRowBlock) {
      ScoreRows(a, row, head, heads);
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

HWY_INLINE void SoftmaxHead(float* scores, size_t count, float sink,
                            float scale) {
  // scale > 0, so the largest product comes from the largest score.
  const float top = std::max(sink, scale * MaxOf(scores, count, scores[0]));
  const float sum = ExpRow(scores, count, scale, top);
  const float factor = 1.0f / (sum + std::exp(sink - top));
  for (size_t i = 0; i < count; ++i) scores[i] *= factor;
}

void Softmax(const AttentionSoftmax& a) {
  for (size_t head = 0; head < a.heads; ++head) {
    SoftmaxHead(a.scores + head * a.score_stride, a.count, a.sink[head],
                a.scale);
  }
}

// out of kHeads heads from `head` on, kVectors vectors of channels from c on.
template <size_t kHeads, size_t kVectors>
HWY_INLINE void SumBlock(const AttentionSum& a, size_t head, size_t c) {
  const float* const weights = a.weights + head * a.weight_stride;
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
      values[v] = Load(a.rows[row] + c + v * kLanes);
      KeepInRegister(values[v]);
    }
#pragma GCC unroll 8
    for (size_t h = 0; h < kHeads; ++h) {
      VF w = hn::Set(kF, weights[h * a.weight_stride + row]);
      KeepInRegister(w);
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
      Store(acc[h][v], a.out + (head + h) * a.out_stride + c + v * kLanes);
    }
  }
}

// The channels from c on of one head, less than a vector of them.
HWY_INLINE void SumTail(const AttentionSum& a, size_t head, size_t c) {
  const size_t n = a.channels - c;
  VF acc = hn::Zero(kF);
  for (size_t row = 0; row < a.count; ++row) {
    const VF w = hn::Set(kF, a.weights[head * a.weight_stride + row]);
    acc = hn::MulAdd(w, LoadPartial(a.rows[row] + c, n), acc);
  }
  StorePartial(acc, a.out + head * a.out_stride + c, n);
}

// A step of a block takes kChannelVectors vectors of a row and a weight of each
// head. Six heads of four vectors fill 32 registers, six of two fit 16: fewer
// heads would not cover the latency of the multiply-adds, or take more vectors
// than are read in their time.
constexpr size_t kSumHeads = 6;
constexpr size_t kChannelVectors = kManyRegisters ? 4 : 2;

template <size_t kHeads>
HWY_INLINE void SumHeads(const AttentionSum& a, size_t head) {
  constexpr size_t kChannels = kChannelVectors * kLanes;
  size_t c = 0;
  for (; c + kChannels <= a.channels; c += kChannels) {
    SumBlock<kHeads, kChannelVectors>(a, head, c);
  }
  for (; c + kLanes <= a.channels; c += kLanes) SumBlock<kHeads, 1>(a, head, c);
  if (c == a.channels) return;
  for (size_t h = 0; h < kHeads; ++h) SumTail(a, head + h, c);
}

void WeightedSum(const AttentionSum& a) {
  size_t head = 0;
  for (; head + kSumHeads <= a.heads; head += kSumHeads) {
    SumHeads<kSumHeads>(a, head);
  }
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
HWY_EXPORT(Scores);
HWY_EXPORT(Softmax);
HWY_EXPORT(WeightedSum);
}  // namespace

void Run(const AttentionScores& step) { HWY_DYNAMIC_DISPATCH(Scores)(step); }
void Run(const AttentionSoftmax& step) { HWY_DYNAMIC_DISPATCH(Softmax)(step); }
void Run(const AttentionSum& step) { HWY_DYNAMIC_DISPATCH(WeightedSum)(step); }

}  // namespace ecphory
#endif
