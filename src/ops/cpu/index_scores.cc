// Index scores: a tile of keys is unpacked and scored for every token of the
// chunk, or for one token that asks for its candidates only. FP4 keys are
// multiplied as integers (index_codes-inl.h), all others as floats.
#define HWY_WANT_AVX3_DL 1  // for VNNI
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/index_scores.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include <limits>
#include "hwy/highway.h"

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot-inl.h"
#include "ops/cpu/index_codes-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_decode.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Keys as floats.
class FloatTile {
 public:
  static constexpr size_t kKeys = 64;  // of 128 floats fill the L1 cache

  FloatTile(const IndexScoresArgs& args, const IndexQueries&)
      : args_(args), keys_(ThreadScratch<FloatTile>(kKeys * args.dim)) {}

  void Load(const uint8_t* const* rows) {
    DecodeRows(args_.key_format, rows, kKeys, args_.dim, keys_);
  }

  void Score(size_t token, float* scores) const {
    for (size_t k = 0; k < kKeys; k += kRowBlock) {
      const float* rows[kRowBlock];
      for (size_t r = 0; r < kRowBlock; ++r) {
        rows[r] = keys_ + (k + r) * args_.dim;
      }
      ScoreFour(token, rows, scores + k);
    }
  }

 private:
  void ScoreFour(size_t token, const float* const* rows, float* scores) const {
    const size_t first = token * args_.heads;
    float totals[kRowBlock] = {};
    for (size_t head = 0; head < args_.heads; head += kVectorBlock) {
      const size_t heads = std::min(kVectorBlock, args_.heads - head);
      const float* q[kVectorBlock];
      float dots[kVectorBlock * kRowBlock];
      for (size_t h = 0; h < heads; ++h) {
        q[h] = args_.q + (first + head + h) * args_.dim;
      }
      DotUpTo(heads, rows, q, args_.dim, dots);
      for (size_t h = 0; h < heads; ++h) {
        const float weight = args_.weights[first + head + h];
        for (size_t r = 0; r < kRowBlock; ++r) {
          const float dot = dots[h * kRowBlock + r];
          totals[r] += (dot < 0 ? 0 : dot) * weight;  // NaN stays NaN
        }
      }
    }
    const float scale = args_.key_scale * args_.head_scale;
    for (size_t r = 0; r < kRowBlock; ++r) scores[r] = totals[r] * scale;
  }

  const IndexScoresArgs& args_;
  float* const keys_;  // [kKeys, dim]
};

size_t Visible(const IndexScoresArgs& args, size_t token) {
  const uint64_t visible = (args.first_position + token + 1) / args.ratio;
  return static_cast<size_t>(std::min<uint64_t>(visible, args.groups));
}

// All tokens against the keys [begin, end).
template <class Tile>
void ScoreAll(const IndexScoresArgs& args, const IndexQueries& queries,
              size_t begin, size_t end) {
  Tile tile(args, queries);
  const size_t row_bytes = RowBytes(args.key_format, args.dim);
  const size_t seen = Visible(args, args.tokens - 1);
  for (size_t g = begin; g < end; g += Tile::kKeys) {
    const size_t count = std::min(Tile::kKeys, end - g);
    if (g < seen) {
      const uint8_t* rows[Tile::kKeys];
      for (size_t i = 0; i < Tile::kKeys; ++i) {
        rows[i] = args.key_rows + std::min(g + i, seen - 1) * row_bytes;
      }
      tile.Load(rows);
    }
    for (size_t t = 0; t < args.tokens; ++t) {
      float* const out = args.scores + t * args.groups + g;
      const size_t visible = std::clamp(Visible(args, t), g, g + count) - g;
      if (visible == Tile::kKeys) {
        tile.Score(t, out);
        continue;
      }
      float scores[Tile::kKeys];
      if (visible > 0) tile.Score(t, scores);
      std::copy_n(scores, visible, out);
      std::fill(out + visible, out + count, kNone);
    }
  }
}

// One token against the keys of some blocks, which share tiles.
template <class Tile>
class BlockScorer {
 public:
  BlockScorer(const IndexScoresArgs& args, const IndexQueries& queries,
              size_t token)
      : args_(args),
        tile_(args, queries),
        token_(token),
        visible_(Visible(args, token)),
        row_bytes_(RowBytes(args.key_format, args.dim)),
        out_(args.scores + token * args.groups) {}

  void Run(const uint32_t* blocks, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const size_t first = blocks[i] * args_.block_size;
      const size_t end = std::min(first + args_.block_size, visible_);
      for (size_t g = first; g < end; ++g) Add(g);
    }
    if (count_ > 0) Flush();
  }

 private:
  void Add(size_t group) {
    groups_[count_] = group;
    rows_[count_] = args_.key_rows + group * row_bytes_;
    if (++count_ == Tile::kKeys) Flush();
  }

  void Flush() {
    std::fill(rows_ + count_, rows_ + Tile::kKeys, rows_[0]);
    float scores[Tile::kKeys];
    tile_.Load(rows_);
    tile_.Score(token_, scores);
    for (size_t i = 0; i < count_; ++i) out_[groups_[i]] = scores[i];
    count_ = 0;
  }

  const IndexScoresArgs& args_;
  Tile tile_;
  const size_t token_;
  const size_t visible_;
  const size_t row_bytes_;
  float* const out_;  // [groups]
  size_t count_ = 0;  // keys waiting for their tile to fill
  size_t groups_[Tile::kKeys];
  const uint8_t* rows_[Tile::kKeys];
};

#if ECPHORY_INDEX_CODES
using PackedTile = CodeTile;
#else
using PackedTile = FloatTile;
#endif

void EncodeQueries(const IndexScoresArgs& args, const IndexQueries& queries,
                   size_t begin, size_t end) {
#if ECPHORY_INDEX_CODES
  EncodeQueryRows(args, queries, begin, end);
#else
  (void)args, (void)queries, (void)begin, (void)end;
#endif
}

void ScoreGroups(const IndexScoresArgs& args, const IndexQueries& queries,
                 size_t begin, size_t end) {
  if (args.key_format == RowFormat::kFp4Block32) {
    return ScoreAll<PackedTile>(args, queries, begin, end);
  }
  ScoreAll<FloatTile>(args, queries, begin, end);
}

void ScoreBlocks(const IndexScoresArgs& args, const IndexQueries& queries,
                 size_t token, const uint32_t* blocks, size_t n) {
  if (args.key_format == RowFormat::kFp4Block32) {
    return BlockScorer<PackedTile>(args, queries, token).Run(blocks, n);
  }
  BlockScorer<FloatTile>(args, queries, token).Run(blocks, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(EncodeQueries);
HWY_EXPORT(ScoreGroups);
HWY_EXPORT(ScoreBlocks);

// Keys are handed out in multiples of this, a whole number of any tile.
constexpr size_t kKeyUnit = 64;
// A product of codes takes about a third of a multiply-add of floats.
size_t KeyWork(const IndexScoresArgs& args) {
  return args.heads * args.dim / 3;
}

IndexQueries Encode(const IndexScoresArgs& args, ThreadPool& pool) {
  struct Purpose;
  IndexQueries queries;
  if (args.key_format != RowFormat::kFp4Block32) return queries;
  const size_t rows = args.tokens * args.heads;
  const size_t blocks = rows * (args.dim / 32);
  queries.codes = ThreadScratch<Purpose, int8_t>(rows * args.dim);
  queries.starts = ThreadScratch<Purpose, int32_t>(blocks);
  queries.scales = ThreadScratch<Purpose>(blocks);
  pool.ParallelFor(rows, GrainFor(4 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(EncodeQueries)
                     (args, queries, begin, end);
                   });
  return queries;
}

// The candidate blocks of a token, ascending; returns how many.
size_t ListBlocks(const IndexScoresArgs& args, size_t token, uint32_t* blocks) {
  const size_t n = CeilDiv(args.groups, args.block_size);
  const uint8_t* const mask = args.mask + token * n;
  size_t count = 0;
  for (size_t b = 0; b < n; ++b) {
    blocks[count] = static_cast<uint32_t>(b);
    count += mask[b] != 0 ? 1 : 0;
  }
  return count;
}

// One token. Candidates may lie close together: the blocks are split among
// threads, not the range in which they lie.
void ScoreTokenMasked(const IndexScoresArgs& args, const IndexQueries& queries,
                      size_t token, ThreadPool& pool) {
  struct Blocks;
  float* const scores = args.scores + token * args.groups;
  pool.ParallelFor(args.groups, GrainFor(1),
                   [&](size_t begin, size_t end, size_t) {
                     std::fill(scores + begin, scores + end,
                               -std::numeric_limits<float>::infinity());
                   });
  uint32_t* const blocks = ThreadScratch<Blocks, uint32_t>(
      CeilDiv(args.groups, args.block_size) + 1);
  const size_t count = ListBlocks(args, token, blocks);
  pool.ParallelFor(count, GrainFor(args.block_size * KeyWork(args)),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(ScoreBlocks)
                     (args, queries, token, blocks + begin, end - begin);
                   });
}

void ScoreMasked(const IndexScoresArgs& args, const IndexQueries& queries,
                 ThreadPool& pool) {
  const auto score = [&](size_t begin, size_t end, size_t) {
    for (size_t t = begin; t < end; ++t) {
      ScoreTokenMasked(args, queries, t, pool);  // inline when nested
    }
  };
  if (args.tokens < 2 * pool.threads()) return score(0, args.tokens, 0);
  pool.ParallelFor(args.tokens, 1, score);
}

}  // namespace

void CpuIndexScores(const IndexScoresArgs& args, ThreadPool& pool) {
  if (args.tokens == 0 || args.groups == 0) return;
  const IndexQueries queries = Encode(args, pool);
  if (args.mask != nullptr) return ScoreMasked(args, queries, pool);
  pool.ParallelFor(CeilDiv(args.groups, kKeyUnit),
                   GrainFor(kKeyUnit * args.tokens * KeyWork(args)),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(ScoreGroups)
                     (args, queries, begin * kKeyUnit,
                      std::min(end * kKeyUnit, args.groups));
                   });
}

// Queries as codes in the caller, a tile of keys in each thread, and a list of
// candidate blocks.
uint64_t IndexScratchBytes(const ScratchShape& shape) {
  constexpr size_t kTileKeys = 64;
  if (shape.topk == 0) return 0;
  const uint64_t rows = shape.index_tokens * shape.index_heads;
  const uint64_t queries =
      shape.index_codes ? rows * (shape.index_dim + shape.index_dim / 32 * 8)
                        : 0;
  const uint64_t tile =
      kTileKeys * (shape.index_codes ? shape.index_dim + shape.index_dim / 8
                                     : sizeof(float) * shape.index_dim);
  const uint64_t blocks =
      shape.block_size == 0 ? 0 : CeilDiv(shape.groups, shape.block_size) + 1;
  return queries + shape.threads * (tile + sizeof(uint32_t) * blocks);
}

}  // namespace ecphory
#endif
