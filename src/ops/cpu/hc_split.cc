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
#include "ops/cpu/hc_tile-inl.h"
#include "ops/cpu/hc_token-inl.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/rms_norm-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// While tile `tile` of a block's group at `first` is multiplied: one token of
// the next group, or of the first group's next chunk.
HWY_INLINE Ahead AheadOf(const HcSplitArgs& args, const HcBlock& block,
                         size_t first, size_t tile, const Chunk& chunk) {
  const bool last_group = first + kTokenTile >= block.tokens;
  const size_t token = (last_group ? 0 : first + kTokenTile) + tile;
  const size_t column = last_group ? chunk.end : chunk.begin;
  if (tile >= kTokenTile || token >= block.tokens || column >= args.dim) {
    return {args.h, 0, args.h, args.h};
  }
  const size_t row = block.first + token, at = row * args.dim + column;
  const float* const y = args.y != nullptr ? args.y : args.x;
  return {args.h + row * args.streams * args.dim + column, args.dim, y + at,
          args.x + at};
}

// The sums of a block of tokens over all chunks, with fn from a panel.
template <class Math>
HWY_INLINE void BlockSumsWith(const Math& math, const HcSplitArgs& args,
                              const float* panel, const HcBlock& block,
                              float* sums) {
  struct Purpose;
  const size_t streams = math.streams(), values = streams * kHcChunk;
  const size_t tiles = CeilDiv(args.fn.rows, kHcRowTile);
  const size_t stride = HcSumsStride(args.fn.rows);
  float* const packed = ThreadScratch<Purpose>(kTokenTile * values);
  for (size_t c = 0; c * kHcChunk < args.dim; ++c) {
    const Chunk chunk(args, c);
    for (size_t t = 0; t < block.tokens; t += kTokenTile) {
      const size_t count = std::min(kTokenTile, block.tokens - t);
      for (size_t i = 0; i < count; ++i) {
        EnterToken(math, args, block.first + t + i, chunk, c > 0,
                   packed + i * values, sums + (t + i) * stride);
      }
      for (size_t tile = 0; tile < tiles; ++tile) {
        float* const tile_sums =
            sums + t * stride + tile * kHcRowTile * kHcSumLanes;
        MultiplyUpTo(count, PackedRows(panel, tiles, tile, streams, chunk),
                     {.packed = packed,
                      .token_stride = values,
                      .first = 0,
                      .last = streams,
                      .vectors = chunk.vectors,
                      .mode = c > 0 ? TileSums::kAdd : TileSums::kSet,
                      .sums = tile_sums,
                      .sums_stride = stride,
                      .ahead = AheadOf(args, block, t, tile, chunk)});
      }
    }
  }
}

void BlockSums(const HcSplitArgs& args, const float* panel,
               const HcBlock& block, float* sums) {
  WithStreamMath(args.streams, args.round_bf16, [&](auto math) HWY_ATTR {
    BlockSumsWith(math, args, panel, block, sums);
  });
}

// How far on in fn the chunk lies that is multiplied kHcChunksAhead after chunk
// c of stream s: of a later stream, or of the next tile's rows.
HWY_INLINE size_t ColumnsAhead(const HcSplitArgs& args, size_t begin,
                               size_t end, size_t s, size_t c) {
  const size_t chunks = end - begin;
  const size_t run = s * chunks + (c - begin) + kHcChunksAhead;
  const size_t runs = args.streams * chunks;
  const size_t stream = run % runs / chunks, chunk = begin + run % chunks;
  return run / runs * kHcRowTile * args.fn.cols + stream * args.dim +
         chunk * kHcChunk - (s * args.dim + c * kHcChunk);
}

// The products of a row tile with all tokens, packed chunk after chunk, for
// chunks [begin, end). Stream by stream, so that fn is read in long runs, and
// still in the order of BlockSums; make_rows(chunk, ahead) gives a chunk of it.
template <class MakeRows>
HWY_INLINE void MultiplyColumns(const HcSplitArgs& args, size_t begin,
                                size_t end, const float* packed, float* sums,
                                const MakeRows& make_rows) {
  const size_t values = args.streams * kHcChunk;
  const size_t stride = HcSumsStride(args.fn.rows);
  for (size_t s = 0; s < args.streams; ++s) {
    for (size_t c = begin; c < end; ++c) {
      const Chunk chunk(args, c);
      const auto rows = make_rows(chunk, ColumnsAhead(args, begin, end, s, c));
      for (size_t t = 0; t < args.tokens; t += kTokenTile) {
        const size_t at = (c - begin) * args.tokens + t;
        MultiplyUpTo(std::min(kTokenTile, args.tokens - t), rows,
                     {.packed = packed + at * values,
                      .token_stride = values,
                      .first = s,
                      .last = s + 1,
                      .vectors = chunk.vectors,
                      .mode = s == 0 ? TileSums::kSet : TileSums::kContinue,
                      .sums = sums + (c * args.tokens + t) * stride,
                      .sums_stride = stride,
                      .ahead = {packed, 0, packed, packed}});
      }
    }
  }
}

// The sums of each of chunks [begin, end) for all tokens, [chunk][token], with
// fn from `panel` unless that is null.
void ColumnSums(const HcSplitArgs& args, const float* panel, size_t begin,
                size_t end, float* sums) {
  struct Purpose;
  const size_t values = args.streams * kHcChunk;
  const size_t tiles = CeilDiv(args.fn.rows, kHcRowTile);
  const size_t stride = HcSumsStride(args.fn.rows);
  float* const packed =
      ThreadScratch<Purpose>((end - begin) * args.tokens * values);
  WithStreamMath(args.streams, args.round_bf16, [&](auto math) HWY_ATTR {
    for (size_t c = begin; c < end; ++c) {
      for (size_t t = 0; t < args.tokens; ++t) {
        EnterToken(math, args, t, Chunk(args, c), /*add=*/false,
                   packed + ((c - begin) * args.tokens + t) * values,
                   sums + (c * args.tokens + t) * stride);
      }
    }
  });
  for (size_t tile = 0; tile < tiles; ++tile) {
    float* const tile_sums = sums + tile * kHcRowTile * kHcSumLanes;
    const auto multiply = [&](const auto& make_rows) HWY_ATTR {
      MultiplyColumns(args, begin, end, packed, tile_sums, make_rows);
    };
    if (panel != nullptr) {
      multiply([&](const Chunk& chunk, size_t) HWY_ATTR {
        return PackedRows(panel, tiles, tile, args.streams, chunk);
      });
      continue;
    }
    WithCodec(args.fn.format, [&](auto codec) HWY_ATTR {
      multiply([&](const Chunk& chunk, size_t ahead) HWY_ATTR {
        return DirectRows<decltype(codec)>(args, tile, chunk, ahead);
      });
    });
  }
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
  WithStreamMath(args.streams, args.round_bf16, [&](auto math) HWY_ATTR {
    using Math = decltype(math);
    for (size_t t = block.first; t < block.first + block.tokens; ++t) {
      float* const x = args.x + t * dim;
      if (args.collapse_pre == nullptr) {
        CollapseColumns(math, args.h + t * args.streams * dim,
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

// A block's x, 640 KB at 5120 columns, is still in L2 for the norm; fn, 2 MB
// there, comes from L3 once a block.
constexpr size_t kBlockTokens = 32;

void SplitByTokens(const HcSplitArgs& args, const float* panel,
                   ThreadPool& pool) {
  pool.ParallelFor(
      args.tokens, GrainFor(args.fn.rows * args.fn.cols),
      [&](size_t begin, size_t end, size_t) {
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

}  // namespace ecphory
#endif
