#include "ops/cpu/matmul_few.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "base/ceil_div.h"
#include "ops/cpu/digits.h"
#include "ops/cpu/gemm_bf16.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

namespace ecphory {

namespace {

// Inputs of products that are computed together, prepared for their kernels:
// those of an output projection, 8 of 4,096 values, as digits.
constexpr size_t kTogether = 8;
constexpr size_t kPreparedBytes = size_t{192} << 10;

bool RoundsInputs(WeightFormat format, MatmulInput input) {
  return input == MatmulInput::kInt8 && TakesInt8(format);
}

// Digits of one token are more bytes than the token itself. Each thread makes
// its own, where others would wait for lines to come from the cache of the one
// that made them: 7 us for 24 KB, 3.6 us to make them (Xeon, 16 threads).
bool SplitsInThreads(WeightFormat format, size_t tokens, MatmulInput input) {
  return tokens == 1 && TakesDigits(format) && !RoundsInputs(format, input);
}

// What an input of `cols` values takes as its kernel wants it; 0 where that is
// as it comes.
size_t PreparedInputBytes(WeightFormat format, size_t cols, MatmulInput input) {
  if (RoundsInputs(format, input)) return Int8RowBytes(cols);
  return TakesDigits(format) ? DigitRowBytes(format, cols) : 0;
}

// Of all inputs that are prepared once for all threads.
size_t PreparedBytes(WeightFormat format, size_t cols, size_t tokens,
                     MatmulInput input) {
  if (SplitsInThreads(format, tokens, input)) return 0;
  return tokens * PreparedInputBytes(format, cols, input);
}
size_t PreparedBytes(const MatmulArgs& args) {
  return PreparedBytes(args.weight.format, args.weight.cols, args.tokens,
                       args.input);
}

// Whether what a thread keeps of one token's x serves both products.
bool SameInput(const MatmulArgs& a, const MatmulArgs& b) {
  return a.x == b.x && a.weight.cols == b.weight.cols;
}

// The digits of a token, which a thread keeps from one range of rows to the
// next.
struct OwnDigits {
  uint64_t id = 0;  // TokenRows::input_id
  WeightFormat format;
  DigitRow row;
};

// ask() is called where they have yet to be made, for what can be on its way
// meanwhile.
template <typename Ask>
const DigitRow* SplitInThread(const Matrix& weight, const float* x, uint64_t id,
                              const Ask& ask) {
  struct Digits;
  thread_local OwnDigits kept;
  if (kept.id != id || kept.format != weight.format) {
    ask();
    uint8_t* const bytes = ThreadScratch<Digits, uint8_t>(
        DigitRowBytes(weight.format, weight.cols));
    kept = {id, weight.format,
            SplitToDigits(weight.format, x, weight.cols, bytes)};
  }
  return &kept.row;
}

// One of several products of few tokens.
class FewTokens {
 public:
  // `prepared`: PreparedBytes(args), aligned to 64. `id`: TokenRows::input_id.
  FewTokens(const MatmulArgs& args, uint8_t* prepared, uint64_t id)
      : args_(&args),
        id_(id),
        rounds_(RoundsInputs(args.weight.format, args.input)),
        input_bytes_(PreparedBytes(args) / args.tokens) {
    const size_t cols = args.weight.cols, rows = args.weight.rows;
    for (size_t t = 0; t < args.tokens; ++t) {
      x_[t] = args.x + t * (args.x_stride != 0 ? args.x_stride : cols);
      y_[t] = args.y + t * (args.y_stride != 0 ? args.y_stride : rows);
      prepared_[t] = prepared + t * input_bytes_;
    }
  }

  size_t groups() const { return CeilDiv(args_->weight.rows, group_rows()); }
  size_t group_work() const {
    return group_rows() * args_->weight.cols * args_->tokens;
  }

  void Prepare(size_t t) {
    const Matrix& weight = args_->weight;
    if (input_bytes_ == 0) return;
    if (rounds_) {
      RoundRowToInt8(weight.format, x_[t], weight.cols, prepared_[t]);
    } else {
      digits_[t] =
          SplitToDigits(weight.format, x_[t], weight.cols, prepared_[t]);
    }
  }

  void MultiplyGroups(size_t begin, size_t end) const {
    const Matrix& weight = args_->weight;
    TokenRows tokens{.x = x_, .y = y_, .tokens = args_->tokens};
    if (input_bytes_ != 0) {
      tokens.x8 = rounds_ ? prepared_ : nullptr;
      tokens.digits = rounds_ ? nullptr : digits_;
    } else if (SplitsInThreads(weight.format, tokens.tokens, args_->input)) {
      tokens.digits =
          SplitInThread(weight, x_[0], id_, [&] { AskForRuns(begin, end); });
    }
    const DenormalsAreZero denormals(args_->input);
    if (tokens.tokens == 1) {
      tokens.input_id = id_;
      if (weight.format != WeightFormat::kFp8Tile32) {
        return MultiplyRuns(tokens, begin, end);
      }
    }
    MatmulRows(weight, tokens, begin * group_rows(),
               std::min(weight.rows, end * group_rows()));
  }

 private:
  // Of kFp8Tile32 half a tile, for which x is multiplied with its scales.
  size_t group_rows() const {
    return args_->weight.format == WeightFormat::kFp8Tile32 ? 16
                                                            : kMatmulRowBlock;
  }

  // Asks for the first bytes of the four runs of groups [begin, end).
  void AskForRuns(size_t begin, size_t end) const {
    constexpr size_t kLine = 64, kOfRun = 1024;
    const Matrix& weight = args_->weight;
    const size_t row_bytes = weight.row_bytes();
    const size_t apart = weight.rows / kMatmulRowBlock * row_bytes;
    const size_t bytes = std::min(kOfRun, (end - begin) * row_bytes);
    const uint8_t* const first =
        weight.data + (weight.first_row + begin) * row_bytes;
    for (size_t i = 0; i < bytes; i += kLine) {
      for (size_t r = 0; r < kMatmulRowBlock; ++r) {
        __builtin_prefetch(first + r * apart + i, /*rw=*/0, /*locality=*/2);
      }
    }
  }

  // Group i has row i of each quarter of the matrix, so that a thread's next
  // range goes on where the one before ended; the last one the rows left over.
  void MultiplyRuns(TokenRows tokens, size_t begin, size_t end) const {
    const Matrix& weight = args_->weight;
    const size_t quarter = weight.rows / kMatmulRowBlock;
    if (end > quarter) {
      MatmulRows(weight, tokens, quarter * kMatmulRowBlock, weight.rows);
      end = quarter;
    }
    tokens.apart = quarter;
    if (begin < end) MatmulRows(weight, tokens, begin, end);
  }

  const MatmulArgs* args_;
  uint64_t id_;
  bool rounds_;
  size_t input_bytes_;  // PreparedInputBytes()
  const float* x_[kMaxFewTokens];
  float* y_[kMaxFewTokens];
  uint8_t* prepared_[kMaxFewTokens];
  DigitRow digits_[kMaxFewTokens];
};

// Inputs first, each of which takes `prepare_work`, then groups of rows of all
// products, as if they were of one.
void MultiplyTogether(std::span<FewTokens> products, size_t tokens,
                      size_t prepare_work, ThreadPool& pool) {
  if (prepare_work != 0) {
    pool.ParallelFor(products.size() * tokens, GrainFor(prepare_work),
                     [&](size_t begin, size_t end, size_t) {
                       for (size_t i = begin; i < end; ++i) {
                         products[i / tokens].Prepare(i % tokens);
                       }
                     });
  }
  size_t groups = 0, work = 0;
  for (const FewTokens& product : products) {
    groups += product.groups();
    work = std::max(work, product.group_work());
  }
  pool.ParallelForPieces(
      groups, GrainFor(work), [&](size_t begin, size_t end, size_t) {
        size_t first = 0;
        for (const FewTokens& product : products) {
          const size_t last = first + product.groups();
          const size_t from = std::max(begin, first), to = std::min(end, last);
          if (from < to) product.MultiplyGroups(from - first, to - first);
          first = last;
        }
      });
}

}  // namespace

uint64_t NewInputIds(size_t count) {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(count, std::memory_order_relaxed);
}

bool TakesFewTokens(const MatmulArgs& args) {
  return args.tokens > 0 && args.tokens <= kMaxFewTokens &&
         !TakesBf16(args.weight, args.input, args.tokens);
}

// As many products at once as have room for their inputs.
void MultiplyFewTokens(const Calls<MatmulArgs>& calls, ThreadPool& pool) {
  struct Products;
  struct Prepared;
  uint64_t id = NewInputIds(calls.size());
  FewTokens* const products = ThreadScratch<Products, FewTokens>(calls.size());
  for (size_t first = 0, last = 0; first < calls.size(); first = last) {
    size_t bytes = 0, work = 0;
    for (; last < calls.size(); ++last) {
      const size_t more = PreparedBytes(calls[last]);
      if (last > first && bytes + more > kPreparedBytes) break;
      bytes += more;
      // Preparing a value takes about as long as 8 multiply-adds.
      if (more != 0) work = std::max(work, 8 * calls[last].weight.cols);
    }
    uint8_t* at = ThreadScratch<Prepared, uint8_t>(bytes);
    for (size_t i = first; i < last; ++i) {
      if (i > 0 && !SameInput(calls[i - 1], calls[i])) ++id;
      products[i - first] = FewTokens(calls[i], at, id);
      at += PreparedBytes(calls[i]);
    }
    MultiplyTogether({products, last - first}, calls[first].tokens, work, pool);
  }
}

// One product may have more than several that are taken together. Passes of one
// token are among those of several.
uint64_t FewTokensScratchBytes(const ScratchShape& shape) {
  uint64_t one = 0, together = 0, thread = 0;
  for (const ScratchProduct& p : shape.products) {
    const uint64_t bytes = PreparedBytes(
        p.format, p.cols, std::min(p.tokens, kMaxFewTokens), p.input);
    one = std::max(one, bytes);
    together = std::max<uint64_t>(
        together, std::min<uint64_t>(kTogether * bytes, kPreparedBytes));
    if (SplitsInThreads(p.format, 1, p.input)) {
      thread = std::max<uint64_t>(thread, DigitRowBytes(p.format, p.cols));
    }
  }
  return std::max(one, together) + shape.threads * thread;
}

}  // namespace ecphory
