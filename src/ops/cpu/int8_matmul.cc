// y = x W^T with x rounded to int8: who rounds, and which rows each thread
// computes.
#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"

namespace ecphory {

namespace {

Int8Kernel KernelOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0: return Int8RowsQ8_0;
    case WeightFormat::kMXFP4: return Int8RowsMXFP4;
    case WeightFormat::kFp4Row32: return Int8RowsFp4Row32;
    case WeightFormat::kQ4_K: return Int8RowsQ4_K;
    case WeightFormat::kQ2_K: return Int8RowsQ2_K;
    case WeightFormat::kIQ2_XXS: return Int8RowsIQ2_XXS;
    default: return nullptr;
  }
}

// Tokens whose rounded inputs are held at once, 3.5 MB at 5,120 values. The
// weights are read again for the next ones.
constexpr size_t kTokens = 256;

// Rows that kernels of many tokens take at once, where there are any.
constexpr size_t kTileRows = 16;

}  // namespace

void RoundRowsToInt8(WeightFormat format, const float* x, size_t x_stride,
                     size_t cols, size_t rows, uint8_t* out, ThreadPool& pool) {
  // Rounding a value takes about as long as 8 multiply-adds.
  pool.ParallelFor(rows, GrainFor(8 * cols),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t r = begin; r < end; ++r) {
                       RoundRowToInt8(format, x + r * x_stride, cols,
                                      out + r * Int8RowBytes(cols));
                     }
                   });
}

void Int8MatmulRows(const Matrix& weight, const TokenRows& tokens, size_t begin,
                    size_t end) {
  const Int8Kernel kernel = KernelOf(weight.format);
  ECPHORY_DCHECK(kernel != nullptr);
  kernel(weight, tokens, begin, end);
}

// By rows only: with few rows and many tokens some threads idle, and a product
// that small does not gain from int8.
void CpuInt8Matmul(const MatmulArgs& args, ThreadPool& pool) {
  const Matrix& weight = args.weight;
  const size_t y_stride = args.y_stride != 0 ? args.y_stride : weight.rows;
  const size_t cols = weight.cols;
  const size_t x_stride = args.x_stride != 0 ? args.x_stride : cols;
  const size_t bytes = Int8RowBytes(cols);
  struct Rounded;
  uint8_t* x[kTokens];
  float* y[kTokens];
  // Of equal length, so that none is taken for few tokens.
  const size_t step = CeilDiv(args.tokens, CeilDiv(args.tokens, kTokens));
  for (size_t first = 0; first < args.tokens; first += step) {
    const size_t count = std::min(step, args.tokens - first);
    uint8_t* const rounded = ThreadScratch<Rounded, uint8_t>(count * bytes);
    RoundRowsToInt8(weight.format, args.x + first * x_stride, x_stride, cols,
                    count, rounded, pool);
    for (size_t t = 0; t < count; ++t) {
      x[t] = rounded + t * bytes;
      y[t] = args.y + (first + t) * y_stride;
    }
    const size_t tile_work = kTileRows * cols * count;
    const uint64_t id = NewInputIds(1);
    pool.ParallelForPieces(
        CeilDiv(weight.rows, kTileRows), GrainFor(tile_work),
        [&](size_t begin, size_t end, size_t) {
          Int8MatmulRows(
              weight, {.y = y, .tokens = count, .x8 = x, .input_id = id},
              begin * kTileRows, std::min(weight.rows, end * kTileRows));
        });
  }
}

// Inputs rounded by the caller; in each thread 4 rows of codes, with a vector
// of scales for every 32, for each format, and tiles.
uint64_t Int8ScratchBytes(const ScratchShape& shape) {
  std::vector<ScratchProduct> products = shape.products;
  for (const ScratchExperts& experts : shape.experts) {
    for (const ScratchProduct& p : ProductsOf(experts, shape)) {
      products.push_back(p);
    }
  }
  uint64_t rounded = 0, tiles = 0;
  std::vector<ScratchProduct> widest;  // of each format
  for (const ScratchProduct& p : products) {
    if (p.input != MatmulInput::kInt8 || !TakesInt8(p.format)) continue;
    if (p.tokens > kMaxFewTokens) {
      rounded = std::max<uint64_t>(
          rounded, std::min(p.tokens, kTokens) * Int8RowBytes(p.cols));
    }
    tiles =
        std::max<uint64_t>(tiles, Int8TileBytes(p.format, p.cols, p.tokens));
    if (p.tokens < 2) continue;
    const auto same = std::find_if(
        widest.begin(), widest.end(),
        [&](const ScratchProduct& w) { return w.format == p.format; });
    if (same == widest.end()) {
      widest.push_back(p);
    } else {
      same->cols = std::max(same->cols, p.cols);
    }
  }
  uint64_t panels = 0;
  for (const ScratchProduct& p : widest) panels += kMatmulRowBlock * 3 * p.cols;
  return rounded + (panels + tiles) * shape.threads;
}

}  // namespace ecphory
