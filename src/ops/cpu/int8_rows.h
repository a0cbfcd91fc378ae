// Products with inputs rounded to int8 (MatmulInput::kInt8): how a rounded
// input lies in memory, and the kernels of a range of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/cpu/matmul_rows.h"
#include "ops/matmul.h"
#include "tensor/int8_block.h"
#include "tensor/matrix.h"

namespace ecphory {

// One input of `cols` values, rounded as tensor/int8_block.h has it, with what
// kernels would otherwise compute once a row of weights. Each part is padded
// with zeros to Int8PaddedCols(cols) values, so that vectors are read whole.
struct Int8Row {
  int8_t* codes;       // [cols], in the order in which a kernel meets them
  int32_t* lane_sums;  // minus the sum of the codes that a lane takes in a step
  float* scales;       // [cols / 32]; times the unit of the weights' codes
  float* sums;         // [cols / 32]: scale * sum of the codes; for Q4_K
  float* half_scales;  // [cols / 16]: of the block that the 16 values are in
  float* half_sums;    // [cols / 16]: scale * sum of the 16 codes; for Q2_K
  int32_t* block_sums;  // [cols / 32]: sum of the codes
};

// Up to the longest group of values that a kernel takes at once.
inline size_t Int8PaddedCols(size_t cols) { return (cols + 511) / 512 * 512; }

// 2.875 bytes a value: of 5,120 values 14 KB, which stay in the first-level
// cache beside the rows of weights that stream past. A multiple of 64.
inline size_t Int8RowBytes(size_t cols) {
  return Int8PaddedCols(cols) / 8 * 23;
}

// The parts of a row of Int8RowBytes(cols) bytes.
inline Int8Row Int8RowAt(uint8_t* bytes, size_t cols) {
  const size_t padded = Int8PaddedCols(cols);
  Int8Row row;
  row.codes = reinterpret_cast<int8_t*>(bytes);
  row.lane_sums = reinterpret_cast<int32_t*>(bytes + padded);
  row.scales = reinterpret_cast<float*>(bytes + 2 * padded);
  row.sums = row.scales + padded / 32;
  row.half_scales = row.sums + padded / 32;
  row.half_sums = row.half_scales + padded / 16;
  row.block_sums = reinterpret_cast<int32_t*>(row.half_sums + padded / 16);
  return row;
}

// Writes the rounded x [cols], for weights of a format with TakesInt8(), to
// `out`: Int8RowBytes(cols) bytes, aligned to 64.
void RoundRowToInt8(WeightFormat format, const float* x, size_t cols,
                    uint8_t* out);

// Rows x_stride floats apart to rows Int8RowBytes(cols) apart, by all threads.
void RoundRowsToInt8(WeightFormat format, const float* x, size_t x_stride,
                     size_t cols, size_t rows, uint8_t* out, ThreadPool& pool);

// y[t][row] = weight[row] . tokens.x8[t] for rows [begin, end), of formats with
// TakesInt8(). The bits of a result do not depend on the range or on the other
// tokens, but for whether they are more than kMaxFewTokens, which are added up
// in another order where there are kernels for them (int8_tiles-inl.h).
// Thread-safe.
void Int8MatmulRows(const Matrix& weight, const TokenRows& tokens, size_t begin,
                    size_t end);

// The working memory that this takes in a thread for more than kMaxFewTokens;
// the formats share it.
size_t Int8TileBytes(WeightFormat format, size_t cols, size_t tokens);

// One kernel a weight format.
using Int8Kernel = void (*)(const Matrix& weight, const TokenRows& tokens,
                            size_t begin, size_t end);
void Int8RowsQ8_0(const Matrix&, const TokenRows&, size_t, size_t);
void Int8RowsMXFP4(const Matrix&, const TokenRows&, size_t, size_t);
void Int8RowsFp4Row32(const Matrix&, const TokenRows&, size_t, size_t);
void Int8RowsQ4_K(const Matrix&, const TokenRows&, size_t, size_t);
void Int8RowsQ2_K(const Matrix&, const TokenRows&, size_t, size_t);
void Int8RowsIQ2_XXS(const Matrix&, const TokenRows&, size_t, size_t);

}  // namespace ecphory
