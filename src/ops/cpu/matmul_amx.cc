// Products on AMX tiles: what is packed and which rows each thread computes.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cpu/gemm_amx.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

namespace ecphory {

namespace {

size_t StrideOr(size_t stride, size_t otherwise) {
  return stride != 0 ? stride : otherwise;
}

// Unpacked inputs in the calling thread's scratch.
AmxInputs InputsOf(const MatmulArgs& args, size_t set_tokens) {
  struct Packed;
  const size_t stride = StrideOr(args.x_stride, args.weight.cols);
  const float** const x = ThreadScratch<Packed, const float*>(args.tokens);
  for (size_t t = 0; t < args.tokens; ++t) x[t] = args.x + t * stride;
  AmxInputs inputs{.tokens = args.tokens,
                   .cols = args.weight.cols,
                   .set_tokens = set_tokens,
                   .x = x};
  inputs.values = ThreadScratch<Packed, uint16_t>(args.tokens * inputs.cols);
  inputs.largest = ThreadScratch<Packed, uint32_t>(args.tokens);
  return inputs;
}

void Measure(const AmxInputs& inputs, size_t token) {
  inputs.largest[token] = LargestMagnitude(inputs.x[token], inputs.cols);
}

void Pack(const MatmulArgs& args, const AmxInputs& inputs, size_t group) {
  PackAmxGroup(args.weight.format, inputs, group, 0, inputs.cols / kAmxBlock,
               inputs.x);
}

// Rows [begin, end) of set `set`.
void MultiplySet(const MatmulArgs& args, const AmxInputs& inputs, size_t set,
                 size_t begin, size_t end) {
  float* y[kAmxSetTokens];
  const AmxInputs one = inputs.Set(set);
  const size_t stride = StrideOr(args.y_stride, args.weight.rows);
  for (size_t t = 0; t < one.tokens; ++t) {
    y[t] = args.y + (set * inputs.set_tokens + t) * stride;
  }
  MatmulRowsAmx(args.weight, one, y, begin, end);
}

// How a product is shared out: tiles of rows, of one set of tokens after the
// other.
struct Units {
  size_t of_set = 0;
  size_t set_tokens = 0;
  size_t count = 0;
  // Of a range at least: no fewer than the tiles have, two, so that inputs come
  // from the cache no more often.
  size_t grain = 0;
};

// Sets of the usual size, unless there are too few rows to go round.
Units UnitsOf(size_t rows, size_t cols, size_t tokens, size_t threads) {
  Units units{.of_set = CeilDiv(rows, kAmxTile)};
  const size_t sets = CeilDiv(2 * threads, units.of_set);
  units.set_tokens = std::min(
      kAmxSetTokens, CeilDiv(CeilDiv(tokens, sets), kAmxTile) * kAmxTile);
  units.count = units.of_set * CeilDiv(tokens, units.set_tokens);
  const size_t work = kAmxTile * cols * std::min(tokens, units.set_tokens);
  units.grain = std::max<size_t>(2, GrainFor(work));
  return units;
}

}  // namespace

void MatmulRowsAmx(const Matrix& weight, const AmxInputs& inputs,
                   float* const* y, size_t begin, size_t end) {
  struct Left;
  bool* const left = ThreadScratch<Left, bool>(end - begin);
  MultiplyAmx(weight, inputs, y, begin, end, left);
  const auto in_fp32 = [&](size_t token, size_t from, size_t to) {
    const float* x = nullptr;
    if (inputs.x != nullptr) {
      x = inputs.x[token];
    } else {
      float* const unpacked = ThreadScratch<Left>(inputs.cols);
      UnpackAmxInput(weight.format, inputs, token, unpacked);
      x = unpacked;
    }
    MatmulRows(weight, {&x, y + token, 1}, from, to);
  };
  for (size_t t = 0; t < inputs.tokens; ++t) {
    if (AmxLeavesToken(inputs.largest[t])) in_fp32(t, begin, end);
  }
  for (size_t row = begin; row < end; ++row) {
    if (!left[row - begin]) continue;
    for (size_t t = 0; t < inputs.tokens; ++t) in_fp32(t, row, row + 1);
  }
}

// By tiles of rows, of one set after the other: each weight is unpacked once
// for a set.
void CpuAmxMatmul(const MatmulArgs& args, ThreadPool& pool) {
  const size_t rows = args.weight.rows, cols = args.weight.cols;
  const Units units = UnitsOf(rows, cols, args.tokens, pool.threads());
  const AmxInputs inputs = InputsOf(args, units.set_tokens);
  pool.ParallelFor(args.tokens, GrainFor(cols),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) Measure(inputs, t);
                   });
  pool.ParallelFor(inputs.groups(), GrainFor(kAmxTile * cols),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t g = begin; g < end; ++g) {
                       Pack(args, inputs, g);
                     }
                   });
  pool.ParallelForPieces(
      units.count, units.grain, [&](size_t begin, size_t end, size_t) {
        for (size_t at = begin; at < end;) {
          const size_t set = at / units.of_set, first = at % units.of_set;
          const size_t count = std::min(end - at, units.of_set - first);
          MultiplySet(args, inputs, set, first * kAmxTile,
                      std::min(rows, (first + count) * kAmxTile));
          at += count;
        }
      });
}

uint64_t AmxMatmulScratchBytes(size_t rows, size_t cols, size_t tokens,
                               size_t threads) {
  const Units units = UnitsOf(rows, cols, tokens, threads);
  const size_t piece =
      ThreadPool::LargestPiece(units.count, units.grain, threads);
  return AmxScratchBytes(std::min(rows, piece * kAmxTile), cols,
                         std::min(tokens, units.set_tokens));
}

}  // namespace ecphory
