// Which rows each token attends, when they are unpacked, and who computes which
// part.
//
// Rows that fit in the second-level cache as floats are unpacked once, the
// window's for several tokens at a time. Larger sets are unpacked twice: a few
// whole rows at a time for the scores, and a few channels of all rows for the
// sum, so that floats never leave the caches and both steps can be split among
// threads without sharing them.
#include "ops/attention.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cpu/attention_token.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_decode.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"

namespace ecphory {

namespace {

// A quarter of the smallest second-level cache of a current server core.
constexpr size_t kResidentFloats = 64 * 1024;
// Tokens that share an unpacked window.
constexpr size_t kTokenTile = 16;
// Rows unpacked at a time for scores: of 512 floats they take half of the
// first-level cache.
constexpr size_t kRowTile = 8;
// Channels of all rows unpacked at a time for the sum, at most: four vectors of
// the widest kind.
constexpr size_t kPanel = 64;
constexpr size_t kPanelUnit = 32;  // how finely they are split
// An exponential and its share of a softmax, in multiply-adds.
constexpr size_t kExpWork = 16;

// The oldest position that the token at `position` attends.
uint64_t FirstOfWindow(const AttentionArgs& args, uint64_t position) {
  const uint64_t first =
      position >= args.window ? position - args.window + 1 : 0;
  return std::max(first, args.window_begin);
}

size_t SelectedCount(const AttentionArgs& args, size_t token) {
  if (args.selected == nullptr) return 0;
  const int32_t* const ids = args.selected + token * args.topk;
  return static_cast<size_t>(std::find(ids, ids + args.topk, -1) - ids);
}

// Packed rows: of the window, then of the compressed entries.
struct PackedRows {
  const uint8_t** rows = nullptr;
  size_t in_window = 0;
  size_t count = 0;
};

void AddWindow(const AttentionArgs& args, uint64_t first, uint64_t last,
               PackedRows* packed) {
  const size_t row_bytes = RowBytes(args.window_format, args.dim);
  for (uint64_t p = first; p <= last; ++p) {
    packed->rows[packed->count++] =
        args.window_rows + p % args.window_capacity * row_bytes;
  }
  packed->in_window = packed->count;
}

void AddSelected(const AttentionArgs& args, size_t token, PackedRows* packed) {
  const size_t row_bytes = RowBytes(args.latent_format, args.dim);
  const int32_t* const ids = args.selected + token * args.topk;
  const size_t count = SelectedCount(args, token);
  for (size_t i = 0; i < count; ++i) {
    packed->rows[packed->count++] =
        args.latent_rows + static_cast<size_t>(ids[i]) * row_bytes;
  }
}

// Most rows that one token attends.
size_t MaxRows(const AttentionArgs& args) {
  const uint64_t last = args.first_position + args.tokens - 1;
  const size_t window =
      static_cast<size_t>(last - FirstOfWindow(args, last)) + 1;
  return std::max(window, std::min(args.window, args.tokens)) +
         (args.selected != nullptr ? args.topk : 0);
}

// --- Rows that fit the cache ------------------------------------------------

// Tokens [begin, end) over one unpacked window.
class ResidentTile {
 public:
  ResidentTile(const AttentionArgs& args, ThreadPool& pool, size_t begin,
               size_t end)
      : args_(args),
        pool_(pool),
        begin_(begin),
        end_(end),
        first_(FirstOfWindow(args, args.first_position + begin)) {}

  void Attend() {
    struct Window;
    struct Selected;
    struct Rows;
    struct List;
    const uint64_t last = args_.first_position + end_ - 1;
    const size_t span = static_cast<size_t>(last - first_) + 1;
    const size_t topk = args_.selected != nullptr ? args_.topk : 0;
    packed_.rows = ThreadScratch<List, const uint8_t*>(std::max(span, topk));
    window_ = ThreadScratch<Window>(span * args_.dim);
    selected_ = ThreadScratch<Selected>(topk * args_.dim);
    rows_ = ThreadScratch<Rows, const float*>(span + topk);
    packed_.count = 0;
    AddWindow(args_, first_, last, &packed_);
    Unpack(args_.window_format, window_);
    for (size_t t = begin_; t < end_; ++t) AttendToken(t);
  }

 private:
  void Unpack(RowFormat format, float* out) {
    pool_.ParallelFor(packed_.count, GrainFor(4 * args_.dim),
                      [&](size_t begin, size_t end, size_t) {
                        DecodeRows(format, packed_.rows + begin, end - begin,
                                   args_.dim, out + begin * args_.dim);
                      });
  }

  void AttendToken(size_t token) {
    packed_.count = 0;
    AddSelected(args_, token, &packed_);
    Unpack(args_.latent_format, selected_);
    const uint64_t last = args_.first_position + token;
    size_t count = 0;
    for (uint64_t p = FirstOfWindow(args_, last); p <= last; ++p) {
      rows_[count++] = window_ + (p - first_) * args_.dim;
    }
    for (size_t i = 0; i < packed_.count; ++i) {
      rows_[count++] = selected_ + i * args_.dim;
    }
    pool_.ParallelFor(args_.heads, GrainFor(2 * count * args_.dim),
                      [&](size_t begin, size_t end, size_t) {
                        AttendHeads(token, count, begin, end);
                      });
  }

  void AttendHeads(size_t token, size_t count, size_t begin, size_t end) {
    struct Scores;
    const size_t heads = end - begin;
    const size_t offset = (token * args_.heads + begin) * args_.dim;
    float* const scores = ThreadScratch<Scores>(heads * count);
    Run(AttentionScores{.q = args_.q + offset,
                        .rows = rows_,
                        .count = count,
                        .heads = heads,
                        .dim = args_.dim,
                        .scores = scores,
                        .score_stride = count});
    Run(AttentionSoftmax{.scores = scores,
                         .score_stride = count,
                         .count = count,
                         .heads = heads,
                         .sink = args_.sink + begin,
                         .scale = args_.scale});
    Run(AttentionSum{.weights = scores,
                     .weight_stride = count,
                     .rows = rows_,
                     .count = count,
                     .heads = heads,
                     .channels = args_.dim,
                     .out = args_.out + offset,
                     .out_stride = args_.dim});
  }

  const AttentionArgs& args_;
  ThreadPool& pool_;
  const size_t begin_;
  const size_t end_;
  const uint64_t first_;  // position of the first row of window_
  PackedRows packed_;
  float* window_ = nullptr;    // [span, dim]
  float* selected_ = nullptr;  // [topk, dim] of the token under way
  const float** rows_ = nullptr;
};

void AttendResident(const AttentionArgs& args, ThreadPool& pool) {
  if (args.tokens < 2 * pool.threads()) {
    return ResidentTile(args, pool, 0, args.tokens).Attend();
  }
  const size_t tile =
      std::clamp<size_t>(args.tokens / (2 * pool.threads()), 1, kTokenTile);
  pool.ParallelFor(CeilDiv(args.tokens, tile), 1,
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t i = begin; i < end; ++i) {
                       ResidentTile(args, pool, i * tile,
                                    std::min((i + 1) * tile, args.tokens))
                           .Attend();
                     }
                   });
}

// --- More rows than fit -----------------------------------------------------

// One token.
class StreamedToken {
 public:
  StreamedToken(const AttentionArgs& args, ThreadPool& pool, size_t token)
      : args_(args),
        pool_(pool),
        token_(token),
        offset_(token * args.heads * args.dim) {}

  void Attend() {
    struct List;
    struct Scores;
    const uint64_t last = args_.first_position + token_;
    packed_.rows = ThreadScratch<List, const uint8_t*>(MaxRows(args_));
    AddWindow(args_, FirstOfWindow(args_, last), last, &packed_);
    if (args_.selected != nullptr) AddSelected(args_, token_, &packed_);
    const size_t count = packed_.count;
    scores_ = ThreadScratch<Scores>(args_.heads * count);
    // Nested in a split of tokens these run on this thread.
    pool_.ParallelFor(CeilDiv(count, kRowTile),
                      GrainFor(kRowTile * args_.heads * args_.dim),
                      [&](size_t begin, size_t end, size_t) {
                        for (size_t i = begin; i < end; ++i) ScoreTile(i);
                      });
    pool_.ParallelFor(
        args_.heads, GrainFor(kExpWork * count),
        [&](size_t begin, size_t end, size_t) { Softmax(begin, end); });
    pool_.ParallelFor(args_.dim / kPanelUnit,
                      GrainFor(kPanelUnit * args_.heads * count),
                      [&](size_t begin, size_t end, size_t) {
                        SumChannels(begin * kPanelUnit, end * kPanelUnit);
                      });
  }

 private:
  // Selected rows lie anywhere in memory: those of the next tile are asked for
  // while this one is computed.
  void Prefetch(size_t begin, size_t end) const {
    constexpr size_t kCacheLine = 64;
    const size_t row_bytes = RowBytes(args_.latent_format, args_.dim);
    for (size_t i = std::max(begin, packed_.in_window); i < end; ++i) {
      for (size_t b = 0; b < row_bytes; b += kCacheLine) {
        __builtin_prefetch(packed_.rows[i] + b);
      }
    }
  }

  // Channels [first, first + n) of rows [begin, end) to out[end - begin, n],
  // and where each of them begins to `rows`.
  void Unpack(size_t begin, size_t end, size_t first, size_t n, float* out,
              const float** rows) const {
    const size_t split = std::clamp(packed_.in_window, begin, end);
    DecodeRowSlices(args_.window_format, packed_.rows + begin, split - begin,
                    args_.dim, first, n, out);
    DecodeRowSlices(args_.latent_format, packed_.rows + split, end - split,
                    args_.dim, first, n, out + (split - begin) * n);
    for (size_t i = 0; i < end - begin; ++i) rows[i] = out + i * n;
  }

  void ScoreTile(size_t tile) const {
    struct Values;
    const size_t begin = tile * kRowTile;
    const size_t end = std::min(begin + kRowTile, packed_.count);
    float* const values = ThreadScratch<Values>(kRowTile * args_.dim);
    const float* rows[kRowTile];
    Prefetch(end, std::min(end + kRowTile, packed_.count));
    Unpack(begin, end, 0, args_.dim, values, rows);
    Run(AttentionScores{.q = args_.q + offset_,
                        .rows = rows,
                        .count = end - begin,
                        .heads = args_.heads,
                        .dim = args_.dim,
                        .scores = scores_ + begin,
                        .score_stride = packed_.count});
  }

  void Softmax(size_t begin, size_t end) const {
    Run(AttentionSoftmax{.scores = scores_ + begin * packed_.count,
                         .score_stride = packed_.count,
                         .count = packed_.count,
                         .heads = end - begin,
                         .sink = args_.sink + begin,
                         .scale = args_.scale});
  }

  void SumChannels(size_t begin, size_t end) const {
    struct Values;
    struct Rows;
    const size_t count = packed_.count;
    float* const values = ThreadScratch<Values>(count * kPanel);
    const float** const rows = ThreadScratch<Rows, const float*>(count);
    for (size_t c = begin; c < end; c += kPanel) {
      const size_t n = std::min(kPanel, end - c);
      Unpack(0, count, c, n, values, rows);
      Run(AttentionSum{.weights = scores_,
                       .weight_stride = count,
                       .rows = rows,
                       .count = count,
                       .heads = args_.heads,
                       .channels = n,
                       .out = args_.out + offset_ + c,
                       .out_stride = args_.dim});
    }
  }

  const AttentionArgs& args_;
  ThreadPool& pool_;
  const size_t token_;
  const size_t offset_;  // of the token in q and out
  PackedRows packed_;
  float* scores_ = nullptr;  // [heads, count]
};

void AttendStreamed(const AttentionArgs& args, ThreadPool& pool) {
  const auto attend = [&](size_t begin, size_t end, size_t) {
    for (size_t t = begin; t < end; ++t) StreamedToken(args, pool, t).Attend();
  };
  if (args.tokens < 2 * pool.threads()) return attend(0, args.tokens, 0);
  pool.ParallelFor(args.tokens, 1, attend);
}

}  // namespace

void CpuAttention(const AttentionArgs& args, ThreadPool& pool) {
  if (args.tokens == 0) return;
  const bool resident = MaxRows(args) * args.dim <= kResidentFloats;
  if (resident || args.dim % kPanelUnit != 0) {
    AttendResident(args, pool);
  } else {
    AttendStreamed(args, pool);
  }
  if (args.round_bf16) {
    CpuRoundBf16({.x = args.out, .count = args.tokens * args.heads * args.dim},
                 pool);
  }
}

// In each thread: where rows stay resident, those of a tile's window and of a
// token's selection as floats, else a few rows and some channels of all; and a
// score for each head and row.
uint64_t AttentionScratchBytes(const ScratchShape& shape) {
  const size_t dim = shape.head_dim, threads = shape.threads;
  uint64_t window = 0, selected = 0, streamed = 0, scores = 0, pointers = 0;
  const auto add = [&](size_t topk) {
    const size_t rows = shape.window + topk;
    if (rows * dim > kResidentFloats && dim % kPanelUnit == 0) {
      streamed = kRowTile * dim + rows * kPanel;
      scores += shape.heads * rows;
      pointers += 2 * rows;
      return;
    }
    const size_t tile =
        std::clamp<size_t>(shape.tokens / (2 * threads), 1, kTokenTile);
    window = (shape.window + tile - 1) * dim;
    selected = std::max<uint64_t>(selected, topk * dim);
    scores = std::max<uint64_t>(scores, shape.heads * rows);
    pointers = std::max<uint64_t>(pointers, 2 * rows);
  };
  if (shape.window_only || shape.topk == 0) add(0);
  if (shape.topk > 0) add(shape.topk);
  return threads * (sizeof(float) * (window + selected + streamed + scores) +
                    sizeof(void*) * pointers);
}

}  // namespace ecphory
