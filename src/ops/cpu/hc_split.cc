// A hyper-connection site in one pass over the streams.
//
//   h = expand(y, h)                        of the site before
//   sums = fn . concat(h), and sum of h^2   for this site's coefficients
//   x = norm(collapse(h))
//
// Bound by memory: (2H + 2) D values a token, and fn once a call. Columns are
// taken in chunks; a chunk of all streams is expanded, collapsed and multiplied
// while it is in L1. Many tokens: threads take groups of tokens through a run
// of chunks, run after run, and fn comes from a panel that all share. Few
// tokens: threads take chunks, so that each reads a part of fn. In both cases a
// token's sums are those of its chunks, added up lane by lane within a run,
// then over the lanes, then over the runs, so that no split shows in the bits.
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

// Chunks [begin, end), a run, of a group of tokens.
struct Group {
  size_t token, tokens;
  size_t begin, end;
};

size_t GroupTokens() { return kGroupTokens; }

// Groups in the order in which a thread takes them, all of a run before those
// of the next. What follows the last one begins past the last column.
HWY_INLINE Group GroupAt(const HcSplitArgs& args, size_t index) {
  const size_t groups = CeilDiv(args.tokens, kGroupTokens);
  const size_t token = index % groups * kGroupTokens;
  const size_t chunk = index / groups * kHcRunChunks;
  return {token, std::min(kGroupTokens, args.tokens - token), chunk,
          std::min(HcChunks(args.dim), chunk + kHcRunChunks)};
}

// What to ask for in step `step` of multiplying a group: the next share of the
// streams that the group `next` reads, run by run. At 4 streams and 4 tokens a
// tile there are as many steps as shares; behind the last share there is none.
HWY_INLINE StreamsAhead StreamsAheadOf(const HcSplitArgs& args,
                                       const Group& next, size_t step) {
  const size_t run_values = kHcRunChunks * kHcChunk;
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

// The sums of a group, with fn from a panel.
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
    const bool first = c == group.begin;
    for (size_t i = 0; i < group.tokens; ++i) {
      EnterToken(math, args, group.token + i, chunk, /*add=*/!first,
                 packed + i * values, sums + i * stride,
                 RowsAheadOf(args, next, i, c - group.begin));
    }
    for (size_t tile = 0; tile < tiles; ++tile) {
      const PackedRows rows(panel, tiles, tile, streams, chunk);
      for (size_t i = 0; i < group.tokens; i += kTokenTile, ++step) {
        MultiplyUpTo(
            std::min(kTokenTile, group.tokens - i), rows,
            {.packed = packed + i * values,
             .token_stride = values,
             .first = 0,
             .last = streams,
             .vectors = chunk.vectors,
             .mode = first ? TileSums::kSet : TileSums::kAdd,
             .sums = sums + i * stride + tile * kHcRowTile * kHcSumLanes,
             .sums_stride = stride,
             .ahead = StreamsAheadOf(args, next, step)});
      }
    }
  }
}

// A vector of sums over chunks.
HWY_INLINE VF Total(const float* sums, size_t chunks, size_t chunk_stride) {
  VF total = Load(sums);
  for (size_t c = 1; c < chunks; ++c) {
    total = hn::Add(total, Load(sums + c * chunk_stride));
  }
  return total;
}

// One token's sums of a run, from those of its chunks.
HWY_INLINE void ReduceRun(const float* sums, size_t rows, size_t chunks,
                          size_t chunk_stride, float* out) {
  const size_t vectors = HcSumVectors(rows);
  for (size_t r = 0; r < vectors; r += 4) {
    VF total[4];
    for (size_t i = 0; i < 4; ++i) {
      total[i] = Total(sums + (r + i) * kHcSumLanes, chunks, chunk_stride);
    }
    StoreSums4(total[0], total[1], total[2], total[3], out + r);
  }
}

// Groups [begin, end): [run][token] sums.
template <class Math>
HWY_INLINE void RunSumsWith(const Math& math, const HcSplitArgs& args,
                            const float* panel, size_t begin, size_t end,
                            float* run_sums) {
  struct Packed;
  struct Sums;
  const size_t rows = args.fn.rows, stride = HcSumsStride(rows);
  float* const packed =
      ThreadScratch<Packed>(kGroupTokens * math.streams() * kHcChunk);
  float* const sums = ThreadScratch<Sums>(kGroupTokens * stride);
  for (size_t i = begin; i < end; ++i) {
    const Group group = GroupAt(args, i);
    GroupSums(math, args, panel, group, GroupAt(args, i + 1), packed, sums);
    const size_t at = group.begin / kHcRunChunks * args.tokens + group.token;
    for (size_t t = 0; t < group.tokens; ++t) {
      ReduceRun(sums + t * stride, rows, /*chunks=*/1, 0,
                run_sums + (at + t) * HcSumVectors(rows));
    }
  }
}

void RunSums(const HcSplitArgs& args, const float* panel, size_t begin,
             size_t end, float* run_sums) {
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    RunSumsWith(math, args, panel, begin, end, run_sums);
  });
}

void ColumnSums(const HcSplitArgs& args, const float* panel, size_t begin,
                size_t end, float* sums) {
  ColumnSumsOf(args, panel, begin, end, sums);
}

// The sums of the runs of tokens [begin, end), from those of their chunks.
void ReduceChunks(const HcSplitArgs& args, const float* sums, size_t begin,
                  size_t end, float* run_sums) {
  const size_t rows = args.fn.rows, stride = HcSumsStride(rows);
  const size_t chunks = HcChunks(args.dim), chunk_stride = args.tokens * stride;
  for (size_t c = 0, run = 0; c < chunks; c += kHcRunChunks, ++run) {
    for (size_t t = begin; t < end; ++t) {
      ReduceRun(sums + c * chunk_stride + t * stride, rows,
                std::min(kHcRunChunks, chunks - c), chunk_stride,
                run_sums + (run * args.tokens + t) * HcSumVectors(rows));
    }
  }
}

// The sums of a token over its runs, and the squares behind those of the rows.
HWY_INLINE void AddRuns(const HcSplitArgs& args, const float* run_sums,
                        size_t token, float* out) {
  const size_t rows = args.fn.rows, vectors = HcSumVectors(rows);
  for (size_t i = 0; i < vectors; ++i) out[i] = run_sums[token * vectors + i];
  for (size_t run = 1; run < HcRuns(args.dim); ++run) {
    const float* const sums = run_sums + (run * args.tokens + token) * vectors;
    for (size_t i = 0; i < vectors; ++i) out[i] += sums[i];
  }
  out[rows] = out[HcSquaresAt(rows)];
}

// Coefficients and x of tokens [begin, end) from the sums of their runs.
void FinishTokens(const HcSplitArgs& args, size_t begin, size_t end,
                  const float* run_sums) {
  struct Totals;
  const size_t dim = args.dim, vectors = HcSumVectors(args.fn.rows);
  float* const totals = ThreadScratch<Totals>((end - begin) * vectors);
  for (size_t t = begin; t < end; ++t) {
    AddRuns(args, run_sums, t, totals + (t - begin) * vectors);
  }
  HcCoefficients(args, {totals, vectors}, begin, end - begin);
  WithStreamMath(args.streams, args.h.format, [&](auto math) HWY_ATTR {
    using Math = decltype(math);
    for (size_t t = begin; t < end; ++t) {
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

HWY_EXPORT(GroupTokens);
HWY_EXPORT(RunSums);
HWY_EXPORT(ColumnSums);
HWY_EXPORT(ReduceChunks);
HWY_EXPORT(FinishTokens);

// Tokens that are finished at once: as many as the widest vector has lanes.
constexpr size_t kFinishTokens = 16;

void Finish(const HcSplitArgs& args, size_t begin, size_t end,
            const float* run_sums) {
  for (size_t t = begin; t < end; t += kFinishTokens) {
    HWY_DYNAMIC_DISPATCH(FinishTokens)
    (args, t, std::min(end, t + kFinishTokens), run_sums);
  }
}

void SplitByRuns(const HcSplitArgs& args, const float* panel, float* run_sums,
                 ThreadPool& pool) {
  const size_t group_tokens = HWY_DYNAMIC_DISPATCH(GroupTokens)();
  const size_t groups = CeilDiv(args.tokens, group_tokens);
  const size_t group_work =
      group_tokens * args.fn.rows * args.streams * kHcRunChunks * kHcChunk;
  pool.ParallelForPieces(HcRuns(args.dim) * groups, GrainFor(group_work),
                         [&](size_t begin, size_t end, size_t) {
                           HWY_DYNAMIC_DISPATCH(RunSums)
                           (args, panel, begin, end, run_sums);
                         });
  pool.ParallelFor(args.tokens, GrainFor(3 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     Finish(args, begin, end, run_sums);
                   });
}

void SplitByColumns(const HcSplitArgs& args, const float* panel,
                    float* run_sums, ThreadPool& pool) {
  struct Purpose;
  const size_t chunks = HcChunks(args.dim);
  float* const sums =
      ThreadScratch<Purpose>(chunks * args.tokens * HcSumsStride(args.fn.rows));
  const size_t chunk_work =
      args.tokens * args.fn.rows * args.streams * kHcChunk;
  pool.ParallelFor(chunks, GrainFor(chunk_work),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(ColumnSums)
                     (args, panel, begin, end, sums);
                   });
  pool.ParallelFor(args.tokens, GrainFor(3 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     HWY_DYNAMIC_DISPATCH(ReduceChunks)
                     (args, sums, begin, end, run_sums);
                     Finish(args, begin, end, run_sums);
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
  struct RunSumsOf;
  float* const run_sums = ThreadScratch<RunSumsOf>(
      HcRuns(args.dim) * args.tokens * HcSumVectors(args.fn.rows));
  few ? SplitByColumns(plain, panel, run_sums, pool)
      : SplitByRuns(plain, panel, run_sums, pool);
}

// Sums of runs and a panel of fn in the caller; in each thread a group of
// packed tokens and its sums. For one token, all of its chunks and their sums.
uint64_t HcScratchBytes(const ScratchShape& shape) {
  const size_t rows = (2 + shape.streams) * shape.streams;
  const size_t chunks = HcChunks(shape.dim);
  const size_t stride = HcSumsStride(rows), vectors = HcSumVectors(rows);
  const bool few = shape.tokens < 2 * shape.threads;
  const uint64_t columns = few ? shape.tokens : 1;
  uint64_t caller = columns * chunks * (stride + shape.streams * kHcChunk) +
                    HcRuns(shape.dim) * shape.tokens * vectors;
  uint64_t thread = kFinishTokens * vectors;
  if (!few || shape.dim % kHcSumLanes != 0) {
    caller += CeilDiv(rows, kHcRowTile) * kHcRowTile * shape.streams * chunks *
              kHcChunk;
  }
  if (!few) {
    thread += HWY_DYNAMIC_DISPATCH(GroupTokens)() *
              (shape.streams * kHcChunk + stride);
  }
  return sizeof(float) * (caller + thread * shape.threads);
}

}  // namespace ecphory
#endif
