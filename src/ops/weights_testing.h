// Random weight matrices in every packed format.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/testing.h"
#include "tensor/float_codec.h"
#include "tensor/matrix.h"

namespace ecphory {

inline constexpr WeightFormat kWeightFormats[] = {
    WeightFormat::kF32,     WeightFormat::kF16,     WeightFormat::kBF16,
    WeightFormat::kQ8_0,    WeightFormat::kMXFP4,   WeightFormat::kQ4_K,
    WeightFormat::kQ2_K,    WeightFormat::kIQ2_XXS, WeightFormat::kFp8Tile32,
    WeightFormat::kFp4Row32};

// Whether rows of `cols` values exist in the format.
inline bool HasRowsOf(WeightFormat format, size_t cols) {
  return cols % BlockValues(format) == 0;
}

// The shortest row of the format that has `cols` values or more.
inline size_t RowOf(WeightFormat format, size_t cols) {
  const size_t block = BlockValues(format);
  return (cols + block - 1) / block * block;
}

// A matrix in a packed format with its bytes and its exact fp32 values.
struct PackedMatrix {
  Matrix view;
  GuardedArray<uint8_t> data;
  GuardedArray<uint8_t> scales;
  std::vector<float> values;  // [rows, cols] of the view
};

// Random bytes but for the f16 scales: a row of blocks of 256.
inline void FillSuperBlocks(WeightFormat format, size_t cols, Random& random,
                            uint8_t* row) {
  const auto scale = [&](uint8_t* p, float low, float high) {
    const uint16_t code = F32ToF16(random.Uniform(low, high));
    std::memcpy(p, &code, sizeof(code));
  };
  Matrix one{.format = format, .rows = 1, .cols = 256};
  for (size_t c = 0; c < cols; c += 256, row += one.row_bytes()) {
    for (size_t i = 0; i < one.row_bytes(); ++i) {
      row[i] = static_cast<uint8_t>(random.Below(256));
    }
    if (format == WeightFormat::kIQ2_XXS) {
      scale(row, 0.005f, 0.01f);  // times at most 15.5 / 4 * 43
      continue;
    }
    const bool q4 = format == WeightFormat::kQ4_K;
    uint8_t* const d = row + (q4 ? 0 : 80);
    scale(d, q4 ? 0.001f : 0.02f, q4 ? 0.003f : 0.04f);
    scale(d + 2, q4 ? 0.01f : 0.02f, q4 ? 0.02f : 0.05f);
  }
}

// One row of random codes whose values are of magnitude about 1.
inline void FillPackedRow(WeightFormat format, size_t cols, Random& random,
                          uint8_t* row) {
  if (BlockValues(format) == 256) {
    FillSuperBlocks(format, cols, random, row);
    return;
  }
  const auto store_u16 = [](uint8_t* p, uint16_t value) {
    std::memcpy(p, &value, sizeof(value));
  };
  const auto byte = [&] { return static_cast<uint8_t>(random.Below(256)); };
  for (size_t c = 0; c < cols; ++c) {
    switch (format) {
      case WeightFormat::kF32: {
        const float value = random.Signed();
        std::memcpy(row + 4 * c, &value, sizeof(value));
        break;
      }
      case WeightFormat::kF16:
        store_u16(row + 2 * c, F32ToF16(random.Signed()));
        break;
      case WeightFormat::kBF16:
        store_u16(row + 2 * c, F32ToBF16(random.Signed()));
        break;
      case WeightFormat::kQ8_0: {
        uint8_t* block = row + c / 32 * 34;
        if (c % 32 == 0) {
          store_u16(block, F32ToF16(random.Uniform(0.002f, 0.01f)));
        }
        block[2 + c % 32] = byte();
        break;
      }
      case WeightFormat::kMXFP4: {
        uint8_t* block = row + c / 32 * 17;
        if (c % 32 == 0) *block = static_cast<uint8_t>(123 + random.Below(4));
        if (c % 2 == 0) block[1 + c % 32 / 2] = byte();
        break;
      }
      case WeightFormat::kFp8Tile32:
        // Up to 0x3f (1.875) of either sign, subnormal codes included.
        row[c] = static_cast<uint8_t>(random.Below(64) | (byte() & 0x80));
        break;
      case WeightFormat::kFp4Row32:
        if (c % 2 == 0) row[c / 2] = byte();
        break;
      default: break;
    }
  }
}

// `first_row` stored rows precede the view, so that it starts inside a tile.
inline PackedMatrix RandomMatrix(WeightFormat format, size_t rows, size_t cols,
                                 Random& random, size_t first_row = 0) {
  Matrix stored{.format = format, .rows = first_row + rows, .cols = cols};
  size_t n_scales = 0;
  if (format == WeightFormat::kFp8Tile32) {
    n_scales = (stored.rows + 31) / 32 * ((cols + 31) / 32);
  } else if (format == WeightFormat::kFp4Row32) {
    n_scales = stored.rows * (cols / 32);
  }
  PackedMatrix packed{
      stored, GuardedArray<uint8_t>(stored.rows * stored.row_bytes()),
      GuardedArray<uint8_t>(n_scales), std::vector<float>(rows * cols)};
  for (size_t r = 0; r < stored.rows; ++r) {
    FillPackedRow(format, cols, random,
                  packed.data.data() + r * stored.row_bytes());
  }
  for (uint8_t& scale : packed.scales) {
    scale = static_cast<uint8_t>(124 + random.Below(4));
  }
  stored.data = packed.data.data();
  stored.scales = n_scales != 0 ? packed.scales.data() : nullptr;
  packed.view = stored.RowBlock(first_row, rows);
  for (size_t r = 0; r < rows; ++r) {
    DequantizeRow(packed.view, r, packed.values.data() + r * cols);
  }
  return packed;
}

}  // namespace ecphory
