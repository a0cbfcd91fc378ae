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

// What an input of `cols` values takes as its kernel wants it; 0 where that is
// as it comes.
size_t PreparedInputBytes(WeightFormat format, size_t cols, MatmulInput input) {
  if (RoundsInputs(format, input)) return Int8RowBytes(cols);
  return TakesDigits(format) ? DigitRowBytes(format, cols) : 0;
}

size_t PreparedBytes(const MatmulArgs& args) {
  return args.tokens *
         PreparedInputBytes(args.weight.format, args.weight.cols, args.input);
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

  size_t groups() const { return CeilDiv(args_->weight.rows, kMatmulRowBlock); }
  size_t group_work() const {
    return kMatmulRowBlock * args_->weight.cols * args_->tokens;
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
    const DenormalsAreZero denormals(args_->input);
    const Matrix& weight = args_->weight;
    TokenRows tokens{.x = x_, .y = y_, .tokens = args_->tokens};
    if (input_bytes_ != 0) {
      tokens.x8 = rounds_ ? prepared_ : nullptr;
      tokens.digits = rounds_ ? nullptr : digits_;
    }
    if (tokens.tokens == 1) {
      tokens.input_id = id_;
      if (weight.format != WeightFormat::kFp8Tile32) {
        return MultiplyRuns(tokens, begin, end);
      }
    }
    MatmulRows(weight, tokens, begin * kMatmulRowBlock,
               std::min(weight.rows, end * kMatmulRowBlock));
  }

 private:
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
  const uint64_t id = NewInputIds(calls.size());
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
      products[i - first] = FewTokens(calls[i], at, id + i);
      at += PreparedBytes(calls[i]);
    }
    MultiplyTogether({products, last - first}, calls[first].tokens, work, pool);
  }
}

// One product may have more than several that are taken together.
uint64_t FewTokensScratchBytes(const ScratchShape& shape) {
  uint64_t one = 0, together = 0;
  for (const ScratchProduct& p : shape.products) {
    const uint64_t bytes = std::min(p.tokens, kMaxFewTokens) *
                           PreparedInputBytes(p.format, p.cols, p.input);
    one = std::max(one, bytes);
    together = std::max<uint64_t>(
        together, std::min<uint64_t>(kTogether * bytes, kPreparedBytes));
  }
  return std::max(one, together);
}

}  // namespace ecphory
