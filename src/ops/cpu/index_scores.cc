// Index scores: keys are decoded in blocks and multiplied with the queries of
// every token of the chunk.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/index_scores.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <limits>
#include "hwy/highway.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_decode.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// scores[i] = sum_head relu(q_head . keys[i]) * weights[head] * scale for the 4
// keys of a block.
HWY_INLINE void ScoreKeys(const IndexScoresArgs& args, const float* q,
                          const float* weights, const float* const* keys,
                          float* scores) {
  const hn::CappedTag<float, kRowBlock> d4;
  constexpr size_t kStep = hn::MaxLanes(decltype(d4)());
  float total[kRowBlock] = {};
  for (size_t head = 0; head < args.heads; head += kVectorBlock) {
    const size_t heads = std::min(kVectorBlock, args.heads - head);
    const float* vectors[kVectorBlock];
    float sums[kVectorBlock * kRowBlock];
    for (size_t h = 0; h < heads; ++h) vectors[h] = q + (head + h) * args.dim;
    DotUpTo(heads, keys, vectors, args.dim, sums);
    for (size_t i = 0; i < kRowBlock; i += kStep) {
      auto sum = hn::LoadU(d4, total + i);
      for (size_t h = 0; h < heads; ++h) {
        const auto relu =
            hn::Max(hn::LoadU(d4, sums + h * kRowBlock + i), hn::Zero(d4));
        sum = hn::MulAdd(relu, hn::Set(d4, weights[head + h]), sum);
      }
      hn::StoreU(sum, d4, total + i);
    }
  }
  const float scale = args.key_scale * args.head_scale;
  for (size_t i = 0; i < kRowBlock; ++i) scores[i] = total[i] * scale;
}

// Scores of keys [begin, begin + count) for one token; `keys` holds them as
// floats.
void ScoreToken(const IndexScoresArgs& args, size_t token, size_t begin,
                size_t count, const float* keys) {
  const size_t visible = (args.first_position + token + 1) / args.ratio;
  const size_t scored =
      std::clamp<size_t>(visible, begin, begin + count) - begin;
  float* const out = args.scores + token * args.groups + begin;
  for (size_t k = 0; k < scored; k += kRowBlock) {
    const float* rows[kRowBlock];
    for (size_t r = 0; r < kRowBlock; ++r) {
      rows[r] = keys + std::min(k + r, scored - 1) * args.dim;
    }
    float scores[kRowBlock];
    ScoreKeys(args, args.q + token * args.heads * args.dim,
              args.weights + token * args.heads, rows, scores);
    std::copy_n(scores, std::min(kRowBlock, scored - k), out + k);
  }
  std::fill(out + scored, out + count, -std::numeric_limits<float>::infinity());
}

void ScoreBlock(const IndexScoresArgs& args, size_t begin, size_t count,
                const float* keys) {
  for (size_t t = 0; t < args.tokens; ++t) {
    ScoreToken(args, t, begin, count, keys);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(ScoreBlock);

// 64 keys of 128 floats fill the L1 cache.
constexpr size_t kKeyBlock = 64;

void ScoreRange(const IndexScoresArgs& args, size_t begin, size_t end) {
  struct Keys;
  const size_t row_bytes = RowBytes(args.key_format, args.dim);
  float* const keys = ThreadScratch<Keys>(kKeyBlock * args.dim);
  const uint8_t* rows[kKeyBlock];
  for (size_t g = begin; g < end; g += kKeyBlock) {
    const size_t count = std::min(kKeyBlock, end - g);
    for (size_t i = 0; i < count; ++i) {
      rows[i] = args.key_rows + (g + i) * row_bytes;
    }
    DecodeRows(args.key_format, rows, count, args.dim, keys);
    HWY_DYNAMIC_DISPATCH(ScoreBlock)(args, g, count, keys);
  }
}

}  // namespace

void CpuIndexScores(const IndexScoresArgs& args, ThreadPool& pool) {
  pool.ParallelFor(
      args.groups, GrainFor(args.tokens * args.heads * args.dim),
      [&](size_t begin, size_t end, size_t) { ScoreRange(args, begin, end); });
}

}  // namespace ecphory
#endif
