// A weight matrix as it lies in the file: packed, never expanded in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace ecphory {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,   // ggml blocks of 32 along the row
  kMXFP4,  // ggml blocks of 32 along the row
  kQ4_K,   // ggml blocks of 256 along the row, as are the next two
  kQ2_K,
  kIQ2_XXS,
  kFp8Tile32,  // released: e4m3 [rows, cols]; e8m0 per 32x32 tile,
               // scales[(row / 32) * ceil(cols / 32) + col / 32]
  kFp4Row32,   // released: packed e2m1 [rows, cols/2], low nibble = even
               // column; e8m0 scales [rows, cols/32]
};

const char* WeightFormatName(WeightFormat format);

// Values of the smallest piece that rows are made of: 1, 32 or 256. Rows of
// kFp8Tile32 may end inside a tile.
size_t BlockValues(WeightFormat format);

// Non-owning view of a [rows, cols] matrix. `data` points at row 0 of the
// stored matrix, `first_row` selects a block of its rows (a view of a head
// group keeps the tile phase of the 32-row scales). Little-endian, any
// alignment.
struct Matrix {
  WeightFormat format = WeightFormat::kF32;
  size_t rows = 0;  // rows of this view
  size_t cols = 0;
  size_t first_row = 0;  // of the stored matrix
  const uint8_t* data = nullptr;
  const uint8_t* scales = nullptr;  // kFp8Tile32 and kFp4Row32 only

  bool empty() const { return data == nullptr; }
  // Bytes of one stored row, without separate scales.
  size_t row_bytes() const;
  // Rows [begin, begin + count) of this view.
  Matrix RowBlock(size_t begin, size_t count) const {
    Matrix view = *this;
    view.first_row += begin;
    view.rows = count;
    return view;
  }
};

// The definition of each format: row `row` of the view, in fp32. Exact but for
// kQ4_K and kQ2_K, whose difference of two products is rounded.
void DequantizeRow(const Matrix& matrix, size_t row, float* out);

}  // namespace ecphory
