// Choosing compressed entries by score: candidate blocks and top-k.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/select.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <limits>
#include "hwy/highway.h"

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/pick_best.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vector-inl.h"
#include "ops/indexer.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// The best finite score of x[n], -infinity when there is none.
HWY_INLINE float BestOf(const float* x, size_t n) {
  const hn::CappedTag<float, 8> d;
  constexpr size_t kStep = hn::MaxLanes(decltype(d)());
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const auto none = hn::Set(d, kNone);
  auto best = none;
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const auto score = hn::LoadU(d, x + i);
    best = hn::Max(best, hn::IfThenElse(hn::IsFinite(score), score, none));
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < n; ++i) {
    if (std::isfinite(x[i])) result = std::max(result, x[i]);
  }
  return result;
}

// best[b] of the blocks [begin, end) of one token.
void PoolBlocks(const CandidateBlocksArgs& args, const float* scores,
                size_t begin, size_t end, float* best) {
  for (size_t b = begin; b < end; ++b) {
    const size_t first = b * args.block_size;
    best[b] =
        BestOf(scores + first, std::min(args.block_size, args.groups - first));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(PoolBlocks);

constexpr float kNone = -std::numeric_limits<float>::infinity();

// A pass over one entry takes about as long as so many multiply-adds.
constexpr size_t kEntryWork = 8;

void SelectToken(const SelectTopkArgs& args, size_t token, ThreadPool& pool) {
  const size_t n_blocks =
      args.mask == nullptr ? 0 : CeilDiv(args.groups, args.block_size);
  int32_t* const selected = args.selected + token * args.topk;
  const size_t count =
      Run(PickBest{.scores = args.scores + token * args.groups,
                   .n = args.groups,
                   .mask = args.mask == nullptr ? nullptr
                                                : args.mask + token * n_blocks,
                   .block_size = args.block_size,
                   .count = args.topk,
                   .picked = selected},
          pool);
  std::fill(selected + count, selected + args.topk, -1);
}

void ChooseBlocks(const CandidateBlocksArgs& args, size_t token,
                  ThreadPool& pool) {
  struct Best;
  struct Picked;
  const size_t n_blocks = CeilDiv(args.groups, args.block_size);
  float* const best = ThreadScratch<Best>(n_blocks);
  pool.ParallelFor(n_blocks, GrainFor(kEntryWork * args.block_size),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(PoolBlocks)
                     (args, args.scores + token * args.groups, begin, end,
                      best);
                   });
  uint8_t* const mask = args.mask + token * n_blocks;
  std::fill(mask, mask + n_blocks, 0);
  size_t newest = n_blocks;  // the last block with a visible entry
  while (newest > 0 && best[newest - 1] == kNone) --newest;
  if (newest == 0) return;
  mask[--newest] = 1;
  int32_t* const picked = ThreadScratch<Picked, int32_t>(newest);
  const size_t count = Run(PickBest{.scores = best,
                                    .n = newest,
                                    .count = args.top_blocks - 1,
                                    .picked = picked},
                           pool);
  for (size_t i = 0; i < count; ++i) mask[picked[i]] = 1;
}

// Many tokens: one per thread at a time. Few: each is split.
template <typename Body>
void ForTokens(size_t tokens, size_t groups, ThreadPool& pool,
               const Body& body) {
  const auto run = [&](size_t begin, size_t end, size_t) {
    for (size_t t = begin; t < end; ++t) body(t);
  };
  if (tokens < 2 * pool.threads()) return run(0, tokens, 0);
  pool.ParallelFor(tokens, GrainFor(kEntryWork * groups), run);
}

}  // namespace

void CpuSelectTopk(const SelectTopkArgs& args, ThreadPool& pool) {
  ForTokens(args.tokens, args.groups, pool,
            [&](size_t token) { SelectToken(args, token, pool); });
}

void CpuCandidateBlocks(const CandidateBlocksArgs& args, ThreadPool& pool) {
  ForTokens(args.tokens, args.groups, pool,
            [&](size_t token) { ChooseBlocks(args, token, pool); });
}

}  // namespace ecphory
#endif
