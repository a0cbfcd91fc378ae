// y = x W^T: which rows and tokens each thread computes.
#include "ops/matmul.h"

#include <algorithm>
#include <map>

#include "base/ceil_div.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/digits.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_amx.h"
#include "ops/cpu/gemm_bf16.h"
#include "ops/cpu/int8_rows.h"
#include "ops/cpu/matmul_few.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/scratch_plan.h"

namespace ecphory {

namespace {

MatmulKernel KernelOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return MatmulRowsF32;
    case WeightFormat::kF16: return MatmulRowsF16;
    case WeightFormat::kBF16: return MatmulRowsBF16;
    case WeightFormat::kQ8_0: return MatmulRowsQ8_0;
    case WeightFormat::kMXFP4: return MatmulRowsMXFP4;
    case WeightFormat::kQ4_K: return MatmulRowsQ4_K;
    case WeightFormat::kQ2_K: return MatmulRowsQ2_K;
    case WeightFormat::kIQ2_XXS: return MatmulRowsIQ2_XXS;
    case WeightFormat::kFp8Tile32: return MatmulRowsFp8Tile32;
    case WeightFormat::kFp4Row32: return MatmulRowsFp4Row32;
  }
  return nullptr;
}

// The inputs as bf16 where that is how they are multiplied, else null. They lie
// in the calling thread's scratch.
const uint16_t* PackInputs(const MatmulArgs& args, size_t x_stride,
                           ThreadPool& pool) {
  if (!TakesBf16(args.weight, args.input, args.tokens)) return nullptr;
  struct Packed;
  const size_t cols = args.weight.cols;
  uint16_t* const packed = ThreadScratch<Packed, uint16_t>(args.tokens * cols);
  pool.ParallelFor(args.tokens, GrainFor(cols),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) {
                       PackBf16Input(args.weight.format, args.x + t * x_stride,
                                     cols, packed + t * cols);
                     }
                   });
  return packed;
}

// Rows [row_begin, row_end) for tokens [token_begin, token_end).
void MatmulTile(const MatmulArgs& args, size_t x_stride, const uint16_t* packed,
                size_t row_begin, size_t row_end, size_t token_begin,
                size_t token_end) {
  const DenormalsAreZero denormals(args.input);
  const size_t y_stride = args.y_stride != 0 ? args.y_stride : args.weight.rows;
  const float* x[kMaxTokenBlock];
  const uint16_t* x16[kMaxTokenBlock];
  float* y[kMaxTokenBlock];
  for (size_t t = token_begin; t < token_end; t += kMaxTokenBlock) {
    const size_t count = std::min(kMaxTokenBlock, token_end - t);
    for (size_t i = 0; i < count; ++i) {
      x[i] = args.x + (t + i) * x_stride;
      y[i] = args.y + (t + i) * y_stride;
      if (packed != nullptr) x16[i] = packed + (t + i) * args.weight.cols;
    }
    MatmulRows(args.weight, {x, y, count, packed != nullptr ? x16 : nullptr},
               row_begin, row_end);
  }
}

// The products of fp32 or bf16 weights and inputs.
void FloatMatmulRows(const Matrix& weight, const TokenRows& tokens,
                     size_t begin, size_t end) {
  struct Unpacked;
  const bool bf16 = tokens.x16 != nullptr;
  float* const panel =
      ThreadScratch<Unpacked>(PanelFloats(weight.cols, tokens.tokens, bf16));
  const MatmulKernel kernel = KernelOf(weight.format);
  // What counts for the caches is the size of a row.
  const size_t block =
      PanelShapeOf(bf16 ? weight.cols / 2 : weight.cols, tokens.tokens).tokens;
  for (size_t t = 0; t < tokens.tokens; t += block) {
    const size_t count = std::min(block, tokens.tokens - t);
    kernel(weight,
           {.x = bf16 ? nullptr : tokens.x + t,
            .y = tokens.y + t,
            .tokens = count,
            .x16 = bf16 ? tokens.x16 + t : nullptr,
            .apart = tokens.apart,
            .input_id = tokens.input_id},
           begin, end, panel);
  }
}

// Tokens whose digits are held at once, 6 MB at 5,120 values. The weights are
// read again for the next ones.
constexpr size_t kSplitTokens = 256;

// `n` tokens in parts of equal length, of up to `most`.
size_t TokensAtOnce(size_t n, size_t most) {
  return CeilDiv(n, std::max<size_t>(1, CeilDiv(n, most)));
}

// Those that have no digits are multiplied in fp32.
void MatmulRowsByDigits(const Matrix& weight, const TokenRows& tokens,
                        size_t begin, size_t end) {
  const size_t step = TokensAtOnce(tokens.tokens, kMaxDigitTokens);
  for (size_t t = 0; t < tokens.tokens; t += step) {
    DigitMatmulRows(weight,
                    {.y = tokens.y + t,
                     .tokens = std::min(step, tokens.tokens - t),
                     .digits = tokens.digits + t,
                     .apart = tokens.apart},
                    begin, end);
  }
  for (size_t t = 0; t < tokens.tokens; ++t) {
    if (tokens.digits[t].groups != nullptr) continue;
    FloatMatmulRows(weight,
                    {.x = tokens.x + t,
                     .y = tokens.y + t,
                     .tokens = 1,
                     .apart = tokens.apart},
                    begin, end);
  }
}

// By rows only, as products with int8 inputs.
void DigitMatmul(const MatmulArgs& args, size_t x_stride, ThreadPool& pool) {
  struct Digits;
  const Matrix& weight = args.weight;
  const size_t y_stride = args.y_stride != 0 ? args.y_stride : weight.rows;
  const size_t step = TokensAtOnce(args.tokens, kSplitTokens);
  uint8_t* const digits = ThreadScratch<Digits, uint8_t>(
      step * DigitRowBytes(weight.format, weight.cols));
  const float* x[kSplitTokens];
  float* y[kSplitTokens];
  DigitRow rows[kSplitTokens];
  for (size_t first = 0; first < args.tokens; first += step) {
    const size_t count = std::min(step, args.tokens - first);
    for (size_t t = 0; t < count; ++t) {
      x[t] = args.x + (first + t) * x_stride;
      y[t] = args.y + (first + t) * y_stride;
    }
    SplitRowsToDigits(weight.format, x[0], x_stride, weight.cols, count, digits,
                      rows, pool);
    const size_t group_work = kMatmulRowBlock * weight.cols * count;
    pool.ParallelFor(
        CeilDiv(weight.rows, kMatmulRowBlock), GrainFor(group_work),
        [&](size_t begin, size_t end, size_t) {
          const DenormalsAreZero denormals(args.input);
          MatmulRows(weight, {.x = x, .y = y, .tokens = count, .digits = rows},
                     begin * kMatmulRowBlock,
                     std::min(weight.rows, end * kMatmulRowBlock));
        });
  }
}

}  // namespace

void MatmulRows(const Matrix& weight, const TokenRows& tokens, size_t begin,
                size_t end) {
  if (tokens.x8 != nullptr) return Int8MatmulRows(weight, tokens, begin, end);
  if (tokens.digits != nullptr) {
    return MatmulRowsByDigits(weight, tokens, begin, end);
  }
  FloatMatmulRows(weight, tokens, begin, end);
}

namespace {

// By rows, so that each weight is read and unpacked by one thread only. When
// there are too few rows for an even split (a mix has 24), by tokens.
void Multiply(const MatmulArgs& args, ThreadPool& pool) {
  if (TakesFewTokens(args)) return MultiplyFewTokens(args, pool);
  if (args.input == MatmulInput::kInt8 && TakesInt8(args.weight.format)) {
    return CpuInt8Matmul(args, pool);
  }
  if (TakesAmx(args.weight, args.input, args.tokens))
    return CpuAmxMatmul(args, pool);
  const size_t rows = args.weight.rows;
  const size_t x_stride = args.x_stride != 0 ? args.x_stride : args.weight.cols;
  if (TakesDigits(args.weight.format)) {
    return DigitMatmul(args, x_stride, pool);
  }
  const uint16_t* const packed = PackInputs(args, x_stride, pool);
  const size_t groups = CeilDiv(rows, kMatmulRowBlock);
  if (groups < 4 * pool.threads() && args.tokens > groups) {
    pool.ParallelFor(args.tokens, GrainFor(rows * args.weight.cols),
                     [&](size_t begin, size_t end, size_t) {
                       MatmulTile(args, x_stride, packed, 0, rows, begin, end);
                     });
    return;
  }
  const size_t group_work = kMatmulRowBlock * args.weight.cols * args.tokens;
  const auto range = [&](size_t begin, size_t end, size_t) {
    MatmulTile(args, x_stride, packed, begin * kMatmulRowBlock,
               std::min(rows, end * kMatmulRowBlock), 0, args.tokens);
  };
  // Where each range packs all inputs, ranges are few.
  if (packed == nullptr && ReordersInputs(args.weight.format)) {
    pool.ParallelFor(groups, GrainFor(group_work), range);
  } else {
    pool.ParallelForPieces(groups, GrainFor(group_work), range);
  }
}

void RoundProduct(const MatmulArgs& args, ThreadPool& pool) {
  if (!args.round_bf16) return;
  const size_t rows = args.weight.rows;
  if (args.y_stride == 0 || args.y_stride == rows) {
    return CpuRoundBf16({.x = args.y, .count = args.tokens * rows}, pool);
  }
  pool.ParallelFor(args.tokens, GrainFor(2 * rows),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) {
                       RoundRunToBf16(args.y + t * args.y_stride, rows);
                     }
                   });
}

}  // namespace

void CpuMatmul(const MatmulArgs& args, ThreadPool& pool) {
  Multiply(args, pool);
  RoundProduct(args, pool);
}

void CpuMatmuls(const Calls<MatmulArgs>& calls, ThreadPool& pool) {
  if (!std::all_of(calls.begin(), calls.end(), TakesFewTokens)) {
    return OneByOne<CpuMatmul>(calls, pool);
  }
  MultiplyFewTokens(calls, pool);
  for (const MatmulArgs& args : calls) RoundProduct(args, pool);
}

namespace {

bool TakesBf16(const ScratchProduct& p) {
  return TakesBf16({.format = p.format, .rows = p.rows, .cols = p.cols},
                   p.input, p.tokens);
}

}  // namespace

// A panel in each thread, and for each format that wants them in its own order
// the inputs of a block of tokens, or with FP8 those of one token times scales;
// rows unpacked for products with digits, beside which inputs without them come
// one by one; inputs packed as bf16 or split into digits in the caller (those
// of experts: ExpertsScratchBytes()). With AMX a panel and sums in each thread,
// inputs in the caller, and what few tokens take. Inputs of few tokens.
uint64_t MatmulScratchBytes(const ScratchShape& shape) {
  uint64_t panel = 0, packed = 0, amx = 0, amx_packed = 0;
  uint64_t digits = 0, digit_panel = 0;
  std::map<WeightFormat, uint64_t> inputs;
  std::vector<ScratchProduct> products = shape.products;
  for (const ScratchProduct& p : products) {
    if (p.tokens <= kMaxFewTokens) continue;
    if (p.input == MatmulInput::kInt8 && TakesInt8(p.format)) continue;
    digits = std::max<uint64_t>(digits, TokensAtOnce(p.tokens, kSplitTokens) *
                                            DigitRowBytes(p.format, p.cols));
  }
  for (const ScratchExperts& experts : shape.experts) {
    for (const ScratchProduct& p : ProductsOf(experts, shape)) {
      products.push_back(p);
    }
  }
  for (size_t i = 0; i < products.size(); ++i) {
    ScratchProduct& p = products[i];
    if (p.input == MatmulInput::kInt8 && TakesInt8(p.format)) continue;
    if (TakesDigits(p.format)) {
      digit_panel = std::max<uint64_t>(
          digit_panel, DigitPanelBytes(p.format, p.cols, p.tokens));
      p.tokens = 1;
    }
    if (TakesAmx({.format = p.format, .rows = p.rows, .cols = p.cols}, p.input,
                 p.tokens)) {
      const bool of_expert = i >= shape.products.size();
      amx = std::max(amx, of_expert
                              ? AmxScratchBytes(p.rows, p.cols, p.tokens)
                              : AmxMatmulScratchBytes(p.rows, p.cols, p.tokens,
                                                      shape.threads));
      amx_packed = std::max<uint64_t>(amx_packed, p.tokens * p.cols);
      p.tokens = kMaxFewTokens;
    }
    const bool bf16 = TakesBf16(p);
    // The last of a prompt may be as many as are not cut, which is more than
    // what equal shares of all of them are.
    const size_t cols = bf16 ? p.cols / 2 : p.cols;
    const size_t most =
        std::min(p.tokens, PanelShapeOf(cols, p.tokens).most_tokens);
    const size_t block = std::min(p.tokens, PanelShapeOf(cols, most).tokens);
    panel = std::max<uint64_t>(panel, PanelFloats(p.cols, most, bf16));
    if (bf16) packed = std::max<uint64_t>(packed, p.tokens * p.cols);
    uint64_t copied = 0;  // tokens
    if (ReordersInputs(p.format)) copied = bf16 ? 1 : block;
    if (p.format == WeightFormat::kFp8Tile32) copied = 1;
    uint64_t& values = inputs[p.format];
    values = std::max<uint64_t>(values, copied * p.cols);
  }
  uint64_t thread = sizeof(float) * panel + digit_panel;
  for (const auto& [format, values] : inputs) thread += sizeof(float) * values;
  return (thread + amx) * shape.threads +
         sizeof(uint16_t) * (packed + amx_packed) + digits +
         FewTokensScratchBytes(shape);
}

}  // namespace ecphory
