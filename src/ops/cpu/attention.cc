// Which rows each token attends, and who computes which tokens or heads.
#include "ops/attention.h"

#include <algorithm>

#include "ops/cpu/attention_token.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/row_decode.h"
#include "ops/cpu/scratch.h"

namespace ecphory {

namespace {

// The oldest position that the token at `position` attends.
uint64_t FirstOfWindow(const AttentionArgs& args, uint64_t position) {
  const uint64_t first =
      position >= args.window ? position - args.window + 1 : 0;
  return std::max(first, args.window_begin);
}

// Window positions that the chunk reads: [first, first + count).
struct WindowSpan {
  explicit WindowSpan(const AttentionArgs& args)
      : first(FirstOfWindow(args, args.first_position)),
        count(args.first_position + args.tokens - first) {}
  uint64_t first;
  size_t count;
};

// The rows of the chunk's window as floats, each decoded once.
const float* DecodeWindow(const AttentionArgs& args, const WindowSpan& span,
                          ThreadPool& pool) {
  struct Pointers;
  struct Values;
  const size_t row_bytes = RowBytes(args.window_format, args.dim);
  const uint8_t** const rows =
      ThreadScratch<Pointers, const uint8_t*>(span.count);
  float* const values = ThreadScratch<Values>(span.count * args.dim);
  for (size_t i = 0; i < span.count; ++i) {
    const size_t slot = (span.first + i) % args.window_capacity;
    rows[i] = args.window_rows + slot * row_bytes;
  }
  pool.ParallelFor(span.count, GrainFor(4 * args.dim),
                   [&](size_t begin, size_t end, size_t) {
                     DecodeRows(args.window_format, rows + begin, end - begin,
                                args.dim, values + begin * args.dim);
                   });
  return values;
}

size_t SelectedCount(const AttentionArgs& args, size_t token) {
  if (args.selected == nullptr) return 0;
  const int32_t* const ids = args.selected + token * args.topk;
  return static_cast<size_t>(std::find(ids, ids + args.topk, -1) - ids);
}

// The compressed rows that `token` attends, as floats.
void DecodeSelected(const AttentionArgs& args, size_t token, size_t count,
                    float* values) {
  struct Pointers;
  const size_t row_bytes = RowBytes(args.latent_format, args.dim);
  const int32_t* const ids = args.selected + token * args.topk;
  const uint8_t** const rows = ThreadScratch<Pointers, const uint8_t*>(count);
  for (size_t i = 0; i < count; ++i) {
    rows[i] = args.latent_rows + static_cast<size_t>(ids[i]) * row_bytes;
  }
  DecodeRows(args.latent_format, rows, count, args.dim, values);
}

// Fills `rows` with the window, then the selected rows, of `token`.
size_t ListRows(const AttentionArgs& args, const WindowSpan& span,
                const float* window, const float* selected, size_t n_selected,
                size_t token, const float** rows) {
  const uint64_t last = args.first_position + token;
  size_t count = 0;
  for (uint64_t p = FirstOfWindow(args, last); p <= last; ++p) {
    rows[count++] = window + (p - span.first) * args.dim;
  }
  for (size_t i = 0; i < n_selected; ++i) {
    rows[count++] = selected + i * args.dim;
  }
  return count;
}

void AttendHeads(const AttentionArgs& args, size_t token,
                 const float* const* rows, size_t count, size_t head_begin,
                 size_t head_end) {
  struct ScoresOf;
  const size_t heads = head_end - head_begin;
  const size_t offset = (token * args.heads + head_begin) * args.dim;
  AttendToken({.q = args.q + offset,
               .rows = rows,
               .count = count,
               .heads = heads,
               .dim = args.dim,
               .sink = args.sink + head_begin,
               .scale = args.scale,
               .scores = ThreadScratch<ScoresOf>(heads * count),
               .out = args.out + offset});
}

}  // namespace

// Many tokens: a token per item, which decodes its own compressed rows. Few:
// the token's rows are decoded once, then its heads are split.
void CpuAttention(const AttentionArgs& args, ThreadPool& pool) {
  struct Rows;
  struct Selected;
  const WindowSpan span(args);
  const float* const window = DecodeWindow(args, span, pool);
  const size_t max_rows = std::min(args.window, span.count) +
                          (args.selected != nullptr ? args.topk : 0);
  const auto prepare = [&](size_t token, const float** rows) {
    const size_t n_selected = SelectedCount(args, token);
    float* const selected = ThreadScratch<Selected>(n_selected * args.dim);
    if (n_selected > 0) DecodeSelected(args, token, n_selected, selected);
    return ListRows(args, span, window, selected, n_selected, token, rows);
  };
  const size_t head_work = 2 * max_rows * args.dim;
  if (args.tokens >= 2 * pool.threads()) {
    pool.ParallelFor(args.tokens, GrainFor(args.heads * head_work),
                     [&](size_t begin, size_t end, size_t) {
                       const float** const rows =
                           ThreadScratch<Rows, const float*>(max_rows);
                       for (size_t t = begin; t < end; ++t) {
                         const size_t count = prepare(t, rows);
                         AttendHeads(args, t, rows, count, 0, args.heads);
                       }
                     });
    return;
  }
  const float** const rows = ThreadScratch<Rows, const float*>(max_rows);
  for (size_t t = 0; t < args.tokens; ++t) {
    const size_t count = prepare(t, rows);
    pool.ParallelFor(args.heads, GrainFor(head_work),
                     [&](size_t begin, size_t end, size_t) {
                       AttendHeads(args, t, rows, count, begin, end);
                     });
  }
}

}  // namespace ecphory
