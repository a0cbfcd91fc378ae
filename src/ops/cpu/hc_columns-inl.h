// The sums of hc_split for a few tokens, over a range of columns; compiled once
// per Highway target.
#if defined(ECPHORY_OPS_CPU_HC_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ECPHORY_OPS_CPU_HC_COLUMNS_INL_H_
#undef ECPHORY_OPS_CPU_HC_COLUMNS_INL_H_
#else
#define ECPHORY_OPS_CPU_HC_COLUMNS_INL_H_
#endif

#include "base/ceil_div.h"
#include "ops/cpu/hc_tile-inl.h"
#include "ops/cpu/hc_token-inl.h"
#include "ops/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {

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
// still in the order of GroupSums; make_rows(chunk, ahead) gives a chunk of it.
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
                      .ahead = NoStreamsAhead(packed)});
      }
    }
  }
}

// The sums of each of chunks [begin, end) for all tokens, [chunk][token], with
// fn from `panel` unless that is null.
HWY_INLINE void ColumnSumsOf(const HcSplitArgs& args, const float* panel,
                             size_t begin, size_t end, float* sums) {
  struct Purpose;
  const size_t values = args.streams * kHcChunk;
  const size_t tiles = CeilDiv(args.fn.rows, kHcRowTile);
  const size_t stride = HcSumsStride(args.fn.rows);
  float* const packed =
      ThreadScratch<Purpose>((end - begin) * args.tokens * values);
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    for (size_t c = begin; c < end; ++c) {
      for (size_t t = 0; t < args.tokens; ++t) {
        EnterToken(math, args, t, Chunk(args, c), /*add=*/false,
                   packed + ((c - begin) * args.tokens + t) * values,
                   sums + (c * args.tokens + t) * stride, NoRowsAhead(packed));
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

}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
