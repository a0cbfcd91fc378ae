// The matmul kernel of one range of rows, for operators that multiply: matmul,
// experts, hyper-connection mixing.
//
// What makes a result the same bits however it is computed, in registers for
// one token or from unpacked panels for many:
// - a weight is exactly DequantizeRow's, multiplied by fused multiply-adds;
// - a pair (row, token) has one vector of sums, which takes the vectors of the
//   row in ascending order; StoreSums4 adds up its lanes;
// - values lie in vectors in the lane order of the format's WeightDecoder
//   (weight_decoder-inl.h). Unpacked rows keep it, and x is packed alike
//   (PackX): once a call and thread, which costs as much as a row.
// Where 2-bit formats are multiplied through integers, digits.h does the same
// by sums that are exact, and by lanes of fp32 sums that take groups in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace ecphory {

struct DigitRow;  // digits.h

// Pointers to the input and output of each token: rows of a matrix, or rows
// picked from one.
struct TokenRows {
  const float* const* x = nullptr;  // [tokens], each weight.cols long
  float* const* y = nullptr;        // [tokens], each weight.rows long
  size_t tokens = 0;
  // The inputs as bf16 (gemm_bf16.h), read instead of x where it is set.
  const uint16_t* const* x16 = nullptr;  // [tokens]
  // The inputs rounded to int8 (int8_rows.h), likewise.
  uint8_t* const* x8 = nullptr;  // [tokens]
  // The inputs as digits (digits.h), of formats with TakesDigits(); where one
  // has none x is read.
  const DigitRow* digits = nullptr;  // [tokens]
  // Not 0, of one token: the range is the first of four that begin so many rows
  // apart, and all of them are computed, side by side.
  size_t apart = 0;
  // Not 0, of one token or of many rounded ones: which input this is. Threads
  // keep what they make of it from one range to the next.
  uint64_t input_id = 0;
};

// The first of `count` values of TokenRows::input_id that nobody has had.
uint64_t NewInputIds(size_t count);

// A range of rows starts at a multiple of this for full speed.
inline constexpr size_t kMatmulRowBlock = 4;

// How one token's kernels take rows [begin, end): the first of four runs is
// [begin, run end), and the rows from `rest` on belong to none.
struct FourRuns {
  FourRuns(size_t range_begin, size_t range_end, size_t rows_apart)
      : apart(rows_apart != 0 ? rows_apart
                              : (range_end - range_begin) / kMatmulRowBlock),
        end(rows_apart != 0 ? range_end : range_begin + apart),
        rest(rows_apart != 0 ? range_end
                             : range_begin + kMatmulRowBlock * apart) {}
  size_t apart;
  size_t end;
  size_t rest;
};

// y[t][row] = weight[row] . x[t] for rows [begin, end). The bits of a result do
// not depend on the range or on the other tokens. Any number of tokens.
void MatmulRows(const Matrix& weight, const TokenRows& tokens, size_t begin,
                size_t end);

// Whether a format's kernel takes inputs in another order than they come in
// (WeightDecoder::kOrder) on this processor, and so keeps a copy of them.
bool ReordersInputs(WeightFormat format);

// One kernel per weight format, each in its own file. `panel` holds
// PanelFloats() of the weights' cols and the tokens (gemm.h).
using MatmulKernel = void (*)(const Matrix& weight, const TokenRows& tokens,
                              size_t begin, size_t end, float* panel);
void MatmulRowsF32(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsF16(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsBF16(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsQ8_0(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsMXFP4(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsQ4_K(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsQ2_K(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsIQ2_XXS(const Matrix&, const TokenRows&, size_t, size_t, float*);
void MatmulRowsFp8Tile32(const Matrix&, const TokenRows&, size_t, size_t,
                         float*);
void MatmulRowsFp4Row32(const Matrix&, const TokenRows&, size_t, size_t,
                        float*);

// Whole vectors, plus one, so that rows of a power of two in length do not all
// fall into the same cache sets.
inline size_t PanelStride(size_t cols) { return (cols + 15) / 16 * 16 + 16; }

}  // namespace ecphory
