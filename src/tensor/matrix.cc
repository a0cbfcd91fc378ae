#include "tensor/matrix.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/float_codec.h"
#include "tensor/super_blocks.h"

namespace ecphory {

namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and are read as they lie");

constexpr size_t kBlock = 32;                   // values per scale
constexpr size_t kQ8Bytes = 2 + kBlock;         // f16 scale, int8 codes
constexpr size_t kMxfp4Bytes = 1 + kBlock / 2;  // e8m0 scale, e2m1 codes

uint16_t LoadU16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

void DequantizeQ8(const uint8_t* in, size_t cols, float* out) {
  for (size_t c = 0; c < cols; c += kBlock, in += kQ8Bytes) {
    const float scale = F16ToF32(LoadU16(in));
    const uint8_t* codes = in + 2;
    for (size_t i = 0; i < kBlock; ++i) {
      out[c + i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
    }
  }
}

void DequantizeMxfp4(const uint8_t* in, size_t cols, float* out) {
  for (size_t c = 0; c < cols; c += kBlock, in += kMxfp4Bytes) {
    const float scale = E8M0ToF32(in[0]);
    const uint8_t* codes = in + 1;
    for (size_t i = 0; i < kBlock / 2; ++i) {
      out[c + i] = E2M1ToF32(codes[i] & 15) * scale;
      out[c + kBlock / 2 + i] = E2M1ToF32(codes[i] >> 4) * scale;
    }
  }
}

// `scales`: of the row's 32-row tile band.
void DequantizeFp8Tile(const uint8_t* in, const uint8_t* scales, size_t cols,
                       float* out) {
  for (size_t c = 0; c < cols; ++c) {
    out[c] = E4M3ToF32(in[c]) * E8M0ToF32(scales[c / kBlock]);
  }
}

void DequantizeFp4Row(const uint8_t* in, const uint8_t* scales, size_t cols,
                      float* out) {
  for (size_t c = 0; c < cols; c += 2) {
    const float scale = E8M0ToF32(scales[c / kBlock]);
    out[c] = E2M1ToF32(in[c / 2] & 15) * scale;
    out[c + 1] = E2M1ToF32(in[c / 2] >> 4) * scale;
  }
}

}  // namespace

const char* WeightFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return "F32";
    case WeightFormat::kF16: return "F16";
    case WeightFormat::kBF16: return "BF16";
    case WeightFormat::kQ8_0: return "Q8_0";
    case WeightFormat::kMXFP4: return "MXFP4";
    case WeightFormat::kQ4_K: return "Q4_K";
    case WeightFormat::kQ2_K: return "Q2_K";
    case WeightFormat::kIQ2_XXS: return "IQ2_XXS";
    case WeightFormat::kFp8Tile32: return "FP8 32x32";
    case WeightFormat::kFp4Row32: return "FP4 1x32";
  }
  return "unknown";
}

size_t BlockValues(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
    case WeightFormat::kFp8Tile32: return 1;
    case WeightFormat::kQ8_0:
    case WeightFormat::kMXFP4:
    case WeightFormat::kFp4Row32: return kBlock;
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ2_K:
    case WeightFormat::kIQ2_XXS: return kSuperBlock;
  }
  return 1;
}

size_t Matrix::row_bytes() const {
  switch (format) {
    case WeightFormat::kF32: return cols * 4;
    case WeightFormat::kF16: return cols * 2;
    case WeightFormat::kBF16: return cols * 2;
    case WeightFormat::kQ8_0: return cols / kBlock * kQ8Bytes;
    case WeightFormat::kMXFP4: return cols / kBlock * kMxfp4Bytes;
    case WeightFormat::kQ4_K: return cols / kSuperBlock * sizeof(Q4KBlock);
    case WeightFormat::kQ2_K: return cols / kSuperBlock * sizeof(Q2KBlock);
    case WeightFormat::kIQ2_XXS:
      return cols / kSuperBlock * sizeof(Iq2xxsBlock);
    case WeightFormat::kFp8Tile32: return cols;
    case WeightFormat::kFp4Row32: return cols / 2;
  }
  return 0;
}

void DequantizeRow(const Matrix& matrix, size_t row, float* out) {
  ECPHORY_DCHECK(row < matrix.rows);
  const size_t cols = matrix.cols;
  const size_t stored_row = matrix.first_row + row;
  const uint8_t* in = matrix.data + stored_row * matrix.row_bytes();
  const size_t tiles = (cols + kBlock - 1) / kBlock;
  switch (matrix.format) {
    case WeightFormat::kF32: std::memcpy(out, in, cols * 4); return;
    case WeightFormat::kF16:
      for (size_t c = 0; c < cols; ++c) out[c] = F16ToF32(LoadU16(in + 2 * c));
      return;
    case WeightFormat::kBF16:
      for (size_t c = 0; c < cols; ++c) out[c] = BF16ToF32(LoadU16(in + 2 * c));
      return;
    case WeightFormat::kQ8_0: DequantizeQ8(in, cols, out); return;
    case WeightFormat::kMXFP4: DequantizeMxfp4(in, cols, out); return;
    case WeightFormat::kQ4_K: DequantizeQ4K(in, cols, out); return;
    case WeightFormat::kQ2_K: DequantizeQ2K(in, cols, out); return;
    case WeightFormat::kIQ2_XXS: DequantizeIq2xxs(in, cols, out); return;
    case WeightFormat::kFp8Tile32:
      DequantizeFp8Tile(in, matrix.scales + stored_row / kBlock * tiles, cols,
                        out);
      return;
    case WeightFormat::kFp4Row32:
      DequantizeFp4Row(in, matrix.scales + stored_row * tiles, cols, out);
      return;
  }
}

}  // namespace ecphory
