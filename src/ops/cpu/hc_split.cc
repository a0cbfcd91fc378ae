// A hyper-connection site in one pass over the streams.
//
//   h = expand(y, h)                        of the site before
//   sums = fn . concat(h), and sum of h^2   for this site's coefficients
//   x = norm(collapse(h))
//
// Bound by memory: (2H + 2) D values a token, and fn once a call. Columns are
// taken in chunks; a chunk of all streams is expanded, collapsed and multiplied
// while it is in L1. Many tokens: threads take tokens, in blocks, and fn comes
// from a panel that all share. Few tokens: threads take chunks, so that each
// reads a part of fn. In both cases a token's sums are those of its chunks,
// added up in order, so that no split shows in the bits.
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/hc_split.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include <algorithm>
#include "hwy/highway.h"

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/hc_coefficients.h"
#include "ops/cpu/hc_columns-inl.h"
#include "ops/cpu/hc_tile-inl.h"
#include "ops/cpu/hc_token-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/rms_norm-inl.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// Chunks [begin, end) of a group of tokens.
struct Group {
  size_t token, tokens;
  size_t begin, end;
};

// What to ask for in step `step` of multiplying a group: the next share of the
// streams that the group `next` reads, run by run. At 4 streams there are as
// many steps as shares.
HWY_INLINE StreamsAhead StreamsAheadOf(const HcSplitArgs& args,
                                       const Group& next, size_t step) {
  const size_t run_values = HcRunChunks() * kHcChunk;
  const size_t share = step * args.streams * kHcChunk;
  const size_t run = share / run_values;
  const size_t column = next.begin * kHcChunk + share % run_values;
  if (run >= next.tokens * args.streams || column >= args.dim) {
    return NoStreamsAhead(args.x);
  }
  const size_t at = (next.token * args.streams + run) * args.dim + column;
  const size_t value_bytes = StreamBytes(args.h.format);
  return {static_cast<const uint8_t*>(args.h.data) + value_bytes * at,
          value_bytes};
}

// What to ask for while chunk `c` of a group's token `i` is entered: that of
// the group `next`. Not in the steps of multiplying as well: what is on its way
// from memory takes up the places of what comes from the second-level cache.
HWY_INLINE RowsAhead RowsAheadOf(const HcSplitArgs& args, const Group& next,
                                 size_t i, size_t c) {
  const size_t column = (next.begin + c) * kHcChunk;
  if (i >= next.tokens || column >= args.dim) return NoRowsAhead(args.x);
  const size_t at = (next.token + i) * args.dim + column;
  return {(args.y != nullptr ? args.y : args.x) + at, args.x + at};
}

// The sums of a group, into those of its tokens or added to them, with fn from
// a panel.
template <class Math>
HWY_INLINE void GroupSums(const Math& math, const HcSplitArgs& args,
                          const float* panel, const Group& group,
                          const Group& next, float* packed, float* sums) {
  const size_t streams = math.streams(), values = streams * kHcChunk;
  const size_t tiles = CeilDiv(args.fn.rows, kHcRowTile);
  const size_t stride = HcSumsStride(args.fn.rows);
  size_t step = 0;
  for (size_t c = group.begin; c < group.end; ++c) {
    const Chunk chunk(args, c);
    for (size_t i = 0; i < group.tokens; ++i) {
      EnterToken(math, args, group.token + i, chunk, c > 0, packed + i * values,
                 sums + i * stride,
                 RowsAheadOf(args, next, i, c - group.begin));
    }
    for (size_t tile = 0; tile < tiles; ++tile, ++step) {
      MultiplyUpTo(group.tokens, PackedRows(panel, tiles, tile, streams, chunk),
                   {.packed = packed,
                    .token_stride = values,
                    .first = 0,
                    .last = streams,
                    .vectors = chunk.vectors,
                    .mode = c > 0 ? TileSums::kAdd : TileSums::kSet,
                    .sums = sums + tile * kHcRowTile * kHcSumLanes,
                    .sums_stride = stride,
                    .ahead = StreamsAheadOf(args, next, step)});
    }
  }
}

// The sums of a block of tokens over all chunks.
template <class Math>
HWY_INLINE void BlockSumsWith(const Math& math, const HcSplitArgs& args,
                              const float* panel, const HcBlock& block,
                              float* sums) {
  struct Purpose;
  const size_t chunks = CeilDiv(args.dim, kHcChunk);
  const size_t run = HcRunChunks();
  const size_t stride = HcSumsStride(args.fn.rows);
  float* const packed =
      ThreadScratch<Purpose>(kTokenTile * math.streams() * kHcChunk);
  const auto group_at = [&](size_t t, size_t c) {
    return Group{block.first + t, std::min(kTokenTile, block.tokens - t), c,
                 std::min(chunks, c + run)};
  };
  for (size_t c = 0; c < chunks; c += run) {
    for (size_t t = 0; t < block.tokens; t += kTokenTile) {
      const bool last = t + kTokenTile >= block.tokens;
      const Group next =
          last ? group_at(0, c + run) : group_at(t + kTokenTile, c);
      GroupSums(math, args, panel, group_at(t, c), next, packed,
                sums + t * stride);
    }
  }
}

void BlockSums(const HcSplitArgs& args, const float* panel,
               const HcBlock& block, float* sums) {
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    BlockSumsWith(math, args, panel, block, sums);
  });
}

void ColumnSums(const HcSplitArgs& args, const float* panel, size_t begin,
                size_t end, float* sums) {
  ColumnSumsOf(args, panel, begin, end, sums);
}

// A vector of sums over all chunks.
HWY_INLINE VF Total(const float* sums, size_t chunks, size_t chunk_stride) {
  VF total = Load(sums);
  for (size_t c = 1; c < chunks; ++c) {
    total = hn::Add(total, Load(sums + c * chunk_stride));
  }
  return total;
}

// The sums of one token, reduced, and the squares behind those of the rows.
HWY_INLINE void ReduceToken(const float* sums, size_t rows, size_t chunks,
                            size_t chunk_stride, float* out) {
  const size_t vectors = HcSumVectors(rows);
  for (size_t r = 0; r < vectors; r += 4) {
    VF total[4];
    for (size_t i = 0; i < 4; ++i) {
      total[i] = Total(sums + (r + i) * kHcSumLanes, chunks, chunk_stride);
    }
    StoreSums4(total[0], total[1], total[2], total[3], out + r);
  }
  out[rows] = out[HcSquaresAt(rows)];
}

// Coefficients and x of a block from its sums.
void FinishBlock(const HcSplitArgs& args, const HcBlock& block,
                 const float* sums, size_t chunks, size_t chunk_stride) {
  struct Totals;
  const size_t rows = args.fn.rows, dim = args.dim;
  const size_t vectors = HcSumVectors(rows);
  float* const totals = ThreadScratch<Totals>(block.tokens * vectors);
  for (size_t t = 0; t < block.tokens; ++t) {
    ReduceToken(sums + t * vectors * kHcSumLanes, rows, chunks, chunk_stride,
                totals + t * vectors);
  }
  HcCoefficients(args, {totals, vectors}, block.first, block.tokens);
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    using Math = decltype(math);
    for (size_t t = block.first; t < block.first + block.tokens; ++t) {
      float* const x = args.x + t * dim;
      if (args.collapse_pre == nullptr) {
        const auto* const h =
            static_cast<const typename Math::Value*>(args.h.data);
        CollapseColumns(math, h + t * args.streams * dim,
                        args.pre + t * args.streams, dim, 0, dim, x);
      }
      NormRow<Math::kRounds>(x, args.norm_weight, args.norm_eps, dim, x);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ecphory {

namespace {

HWY_EXPORT(BlockSums);
HWY_EXPORT(ColumnSums);
HWY_EXPORT(FinishBlock);

// A block's x, 320 KB at 5120 columns, is still in L2 for the norm, beside the
// part of fn that is multiplied, even where two threads share it; fn, 2 MB
// there, comes from L3 once a block.
constexpr size_t kBlockTokens = 16;
// What a thread takes at least, where there are enough: fewer would read fn too
// often.
constexpr size_t kPieceTokens = 8;

void SplitByTokens(const HcSplitArgs& args, const float* panel,
                   ThreadPool& pool) {
  const size_t grain =
      std::max(GrainFor(args.fn.rows * args.fn.cols),
               std::min(kPieceTokens, args.tokens / pool.threads()));
  pool.ParallelForPieces(
      args.tokens, grain, [&](size_t begin, size_t end, size_t) {
        struct Purpose;
        float* const sums =
            ThreadScratch<Purpose>(kBlockTokens * HcSumsStride(args.fn.rows));
        for (size_t t = begin; t < end; t += kBlockTokens) {
          const HcBlock block{t, std::min(kBlockTokens, end - t)};
          HWY_DYNAMIC_DISPATCH(BlockSums)(args, panel, block, sums);
          HWY_DYNAMIC_DISPATCH(FinishBlock)(args, block, sums, 1, 0);
        }
      });
}

void SplitByColumns(const HcSplitArgs& args, const float* panel,
                    ThreadPool& pool) {
  struct Purpose;
  const size_t chunks = CeilDiv(args.dim, kHcChunk);
  const size_t stride = HcSumsStride(args.fn.rows);
  const size_t chunk_stride = args.tokens * stride;
  float* const sums = ThreadScratch<Purpose>(chunks * chunk_stride);
  const size_t chunk_work =
      args.tokens * args.fn.rows * args.streams * kHcChunk;
  pool.ParallelFor(chunks, GrainFor(chunk_work),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(ColumnSums)
                     (args, panel, begin, end, sums);
                   });
  pool.ParallelFor(args.tokens, GrainFor(3 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(FinishBlock)
                     (args, {begin, end - begin}, sums + begin * stride, chunks,
                      chunk_stride);
                   });
}

}  // namespace

void CpuHcSplit(const HcSplitArgs& args, ThreadPool& pool) {
  HcSplitArgs plain = args;
  plain.fn = HcPlainMatrix(args.fn, pool);
  // Below two tokens a thread most of the time goes into reading fn, and a
  // panel of it does not pay unless rows end in the middle of a vector.
  const bool few = args.tokens < 2 * pool.threads();
  const bool pack = !few || args.dim % kHcSumLanes != 0;
  const float* const panel = pack ? HcPanel(plain, pool) : nullptr;
  few ? SplitByColumns(plain, panel, pool) : SplitByTokens(plain, panel, pool);
}

// A panel of fn in the caller; in each thread a group of packed tokens and the
// sums of a block. For one token, all of its chunks and their sums.
uint64_t HcScratchBytes(const ScratchShape& shape) {
  constexpr size_t kWidestGroup = 4;  // kTokenTile of most targets
  const size_t rows = (2 + shape.streams) * shape.streams;
  const size_t chunks = CeilDiv(shape.dim, kHcChunk);
  const size_t stride = HcSumsStride(rows);
  const bool few = shape.tokens < 2 * shape.threads;
  const uint64_t columns = few ? shape.tokens : 1;
  uint64_t caller = columns * chunks * (stride + shape.streams * kHcChunk);
  uint64_t thread = 0;
  if (!few || shape.dim % kHcSumLanes != 0) {
    caller += CeilDiv(rows, kHcRowTile) * kHcRowTile * shape.streams * chunks *
              kHcChunk;
  }
  if (!few) {
    thread = kWidestGroup * shape.streams * kHcChunk +
             kBlockTokens * (stride + HcSumVectors(rows));
  }
  return sizeof(float) * (caller + thread * shape.threads);
}

}  // namespace ecphory
#endif
