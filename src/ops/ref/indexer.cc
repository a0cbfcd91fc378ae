#include "ops/indexer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/math.h"
#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

namespace {

constexpr float kInvisible = -std::numeric_limits<float>::infinity();

// Blocks of a token in `mask`, which may be null.
size_t BlockCount(const uint8_t* mask, size_t groups, size_t block_size) {
  return mask == nullptr ? 0 : (groups + block_size - 1) / block_size;
}

// sum_head relu(q_head . key) * weight_head, unscaled.
double ScoreKey(const IndexScoresArgs& args, size_t t, const float* key) {
  double sum = 0;
  for (size_t head = 0; head < args.heads; ++head) {
    const float* q = args.q + (t * args.heads + head) * args.dim;
    const double relu = std::max(Dot(q, key, args.dim), 0.0);
    sum += relu * args.weights[t * args.heads + head];
  }
  return sum;
}

struct Scored {
  float score;
  size_t index;
};

// Keeps the `count` best by score, ties to the lower index.
void KeepBest(std::vector<Scored>& items, size_t count) {
  std::sort(items.begin(), items.end(), [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  if (items.size() > count) items.resize(count);
}

}  // namespace

void IndexScores(const IndexScoresArgs& args, ThreadPool&) {
  const size_t row_bytes = RowBytes(args.key_format, args.dim);
  const double scale = static_cast<double>(args.key_scale) * args.head_scale;
  const size_t n_blocks = BlockCount(args.mask, args.groups, args.block_size);
  std::vector<float> key(args.dim);
  for (size_t g = 0; g < args.groups; ++g) {
    DecodeRow(args.key_format, args.key_rows + g * row_bytes, args.dim,
              key.data());
    for (size_t t = 0; t < args.tokens; ++t) {
      const bool visible = g < (args.first_position + t + 1) / args.ratio;
      const bool candidate = args.mask == nullptr ||
                             args.mask[t * n_blocks + g / args.block_size] != 0;
      args.scores[t * args.groups + g] =
          visible && candidate
              ? static_cast<float>(ScoreKey(args, t, key.data()) * scale)
              : kInvisible;
    }
  }
}

void CandidateBlocks(const CandidateBlocksArgs& args, ThreadPool&) {
  const size_t n_blocks = (args.groups + args.block_size - 1) / args.block_size;
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* scores = args.scores + t * args.groups;
    uint8_t* mask = args.mask + t * n_blocks;
    std::fill(mask, mask + n_blocks, 0);
    // Blocks that hold a visible entry, with their best score, in order.
    std::vector<Scored> blocks;
    for (size_t g = 0; g < args.groups; ++g) {
      if (!std::isfinite(scores[g])) continue;
      const size_t block = g / args.block_size;
      if (blocks.empty() || blocks.back().index != block) {
        blocks.push_back({scores[g], block});
      }
      blocks.back().score = std::max(blocks.back().score, scores[g]);
    }
    if (blocks.empty()) continue;
    mask[blocks.back().index] = 1;
    blocks.pop_back();
    KeepBest(blocks, args.top_blocks - 1);
    for (const Scored& block : blocks) mask[block.index] = 1;
  }
}

void SelectTopk(const SelectTopkArgs& args, ThreadPool&) {
  const size_t n_blocks = BlockCount(args.mask, args.groups, args.block_size);
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* scores = args.scores + t * args.groups;
    std::vector<Scored> entries;
    for (size_t g = 0; g < args.groups; ++g) {
      const bool candidate = args.mask == nullptr ||
                             args.mask[t * n_blocks + g / args.block_size] != 0;
      if (candidate && std::isfinite(scores[g])) {
        entries.push_back({scores[g], g});
      }
    }
    KeepBest(entries, args.topk);
    int32_t* selected = args.selected + t * args.topk;
    std::fill(selected, selected + args.topk, -1);
    for (size_t i = 0; i < entries.size(); ++i) {
      selected[i] = static_cast<int32_t>(entries[i].index);
    }
    std::sort(selected, selected + entries.size());
  }
}

}  // namespace ecphory::ref
