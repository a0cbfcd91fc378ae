// Choosing compressed entries by score: candidate blocks and top-k. Linear in
// the number of entries: find the score of the k-th best, then take in order.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/indexer.h"

namespace ecphory {

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// What the `count` best of some scores are: all above `threshold`, and the
// first `ties` of those equal to it.
struct Cut {
  float threshold = kNone;
  size_t ties = 0;

  bool Takes(float score) {
    if (score > threshold) return true;
    if (score != threshold || ties == 0) return false;
    --ties;
    return true;
  }
};

// `scores` (n of them, all finite) end up in another order.
Cut CutAt(float* scores, size_t n, size_t count) {
  if (count == 0) return {std::numeric_limits<float>::infinity(), 0};
  if (n <= count) return {};  // finite scores are above -inf
  float* const last = scores + count - 1;
  std::nth_element(scores, last, scores + n, std::greater<float>());
  const auto above =
      std::count_if(scores, last, [&](float s) { return s > *last; });
  return {*last, count - static_cast<size_t>(above)};
}

// kNone for every entry that cannot be chosen.
float Choosable(const SelectTopkArgs& args, const uint8_t* mask,
                const float* scores, size_t g) {
  if (mask != nullptr && mask[g / args.block_size] == 0) return kNone;
  return std::isfinite(scores[g]) ? scores[g] : kNone;
}

void SelectToken(const SelectTopkArgs& args, size_t token) {
  struct Finite;
  const float* const scores = args.scores + token * args.groups;
  const uint8_t* const mask =
      args.mask == nullptr
          ? nullptr
          : args.mask + token * CeilDiv(args.groups, args.block_size);
  float* const finite = ThreadScratch<Finite>(args.groups);
  size_t n = 0;
  for (size_t g = 0; g < args.groups; ++g) {
    const float score = Choosable(args, mask, scores, g);
    if (score != kNone) finite[n++] = score;
  }
  Cut cut = CutAt(finite, n, args.topk);
  int32_t* const selected = args.selected + token * args.topk;
  size_t taken = 0;
  for (size_t g = 0; g < args.groups && taken < args.topk; ++g) {
    const float score = Choosable(args, mask, scores, g);
    if (score != kNone && cut.Takes(score)) {
      selected[taken++] = static_cast<int32_t>(g);
    }
  }
  std::fill(selected + taken, selected + args.topk, -1);
}

// The best finite score of each block, kNone where there is none.
void PoolBlocks(const CandidateBlocksArgs& args, const float* scores,
                float* best) {
  for (size_t g = 0; g < args.groups; ++g) {
    float& block = best[g / args.block_size];
    if (g % args.block_size == 0) block = kNone;
    if (std::isfinite(scores[g])) block = std::max(block, scores[g]);
  }
}

void ChooseBlocks(const CandidateBlocksArgs& args, size_t token) {
  struct Best;
  struct Finite;
  const size_t n_blocks = CeilDiv(args.groups, args.block_size);
  float* const best = ThreadScratch<Best>(n_blocks);
  float* const finite = ThreadScratch<Finite>(n_blocks);
  PoolBlocks(args, args.scores + token * args.groups, best);
  uint8_t* const mask = args.mask + token * n_blocks;
  std::fill(mask, mask + n_blocks, 0);
  size_t newest = n_blocks;  // the last block with a visible entry
  while (newest > 0 && best[newest - 1] == kNone) --newest;
  if (newest == 0) return;
  mask[--newest] = 1;
  const auto end = std::copy_if(best, best + newest, finite,
                                [](float score) { return score != kNone; });
  Cut cut =
      CutAt(finite, static_cast<size_t>(end - finite), args.top_blocks - 1);
  for (size_t b = 0; b < newest; ++b) {
    if (best[b] != kNone && cut.Takes(best[b])) mask[b] = 1;
  }
}

// Passes over one entry take about as long as this many multiply-adds.
constexpr size_t kEntryWork = 32;

}  // namespace

void CpuSelectTopk(const SelectTopkArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.tokens, GrainFor(kEntryWork * args.groups),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) SelectToken(args, t);
                   });
}

void CpuCandidateBlocks(const CandidateBlocksArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.tokens, GrainFor(kEntryWork * args.groups),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) ChooseBlocks(args, t);
                   });
}

}  // namespace ecphory
