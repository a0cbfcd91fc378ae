#include "model/convert_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tensor/float_codec.h"

namespace ecphory {

namespace {

using Ull = unsigned long long;

// Large enough for fast reads, small beside any model.
constexpr uint64_t kBufferBytes = 4u << 20;
constexpr size_t kBlock = 32;  // values per scale in every format
constexpr size_t kQ8Bytes = 2 + kBlock;
constexpr size_t kMxfp4Bytes = 1 + kBlock / 2;

// Rows that share a row of scales: a band never starts inside a tile.
uint64_t BandRows(uint64_t row_bytes) {
  const uint64_t rows = kBufferBytes / std::max<uint64_t>(row_bytes, 1);
  return std::max<uint64_t>(rows / kBlock, 1) * kBlock;
}

void StoreU16(uint16_t value, uint8_t* out) {
  std::memcpy(out, &value, sizeof(value));
}

Status NotFinite(const SourceFiles& files, const StoredMatrix& matrix,
                 uint64_t row, DType dtype) {
  return Corrupt("%s: row %llu is not finite as %s, expected finite values",
                 TensorLabel(files.source(), *matrix.data).c_str(),
                 static_cast<Ull>(row), DTypeName(dtype));
}

// A row of fp32 values in one of the plain types; false when one is not finite.
bool EncodePlainRow(DType dtype, const float* x, size_t cols, uint8_t* out) {
  for (size_t i = 0; i < cols; ++i) {
    if (!std::isfinite(x[i])) return false;
    if (dtype == DType::kF32) {
      std::memcpy(out + 4 * i, &x[i], sizeof(float));
      continue;
    }
    const bool half = dtype == DType::kF16;
    const uint16_t code = half ? F32ToF16(x[i]) : F32ToBF16(x[i]);
    if (!std::isfinite(half ? F16ToF32(code) : BF16ToF32(code))) return false;
    StoreU16(code, out + 2 * i);
  }
  return true;
}

bool EncodeRow(DType dtype, const float* x, size_t cols, uint8_t* out) {
  return dtype == DType::kQ8_0 ? EncodeQ8Weights(x, cols, out)
                               : EncodePlainRow(dtype, x, cols, out);
}

// `band` is packed FP4; false when a scale is NaN.
bool RepackRow(const Matrix& band, size_t row, uint8_t* out) {
  const size_t blocks = band.cols / kBlock;
  const uint8_t* scales = band.scales + row * blocks;
  if (std::memchr(scales, 255, blocks) != nullptr) return false;
  RepackMxfp4Row(band.data + row * (band.cols / 2), scales, band.cols, out);
  return true;
}

bool EncodeBandRow(const Matrix& band, size_t row, DType dtype, float* values,
                   uint8_t* out) {
  if (dtype == DType::kMXFP4) return RepackRow(band, row, out);
  DequantizeRow(band, row, values);
  return EncodeRow(dtype, values, band.cols, out);
}

}  // namespace

Result<SourceFiles> SourceFiles::Open(const ModelSource& source) {
  SourceFiles files;
  files.source_ = &source;
  for (const ModelFile& file : source.index.files()) {
    ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<RandomAccessFile> opened,
                             OpenFile(file.path));
    files.files_.push_back(std::move(opened));
  }
  return files;
}

Status SourceFiles::Read(const TensorInfo& tensor, uint64_t offset,
                         std::span<uint8_t> out) const {
  return files_[tensor.file]->ReadExact(tensor.offset + offset, out);
}

Status ForEachBand(const SourceFiles& files, const StoredMatrix& matrix,
                   const BandVisitor& visit) {
  Matrix band;
  band.format = matrix.format;
  band.cols = matrix.cols;
  const uint64_t row_bytes = band.row_bytes();
  const uint64_t band_rows = BandRows(row_bytes);
  const bool tiles = matrix.format == WeightFormat::kFp8Tile32;
  const uint64_t scale_cols = (matrix.cols + kBlock - 1) / kBlock;
  std::vector<uint8_t> data, scales;
  for (uint64_t first = 0; first < matrix.rows; first += band_rows) {
    band.rows = std::min(band_rows, matrix.rows - first);
    data.resize(band.rows * row_bytes);
    ECPHORY_RETURN_IF_ERROR(
        files.Read(*matrix.data, matrix.data_offset + first * row_bytes, data));
    if (matrix.scales != nullptr) {
      const uint64_t unit = tiles ? kBlock : 1;  // rows per row of scales
      scales.resize((band.rows + unit - 1) / unit * scale_cols);
      ECPHORY_RETURN_IF_ERROR(
          files.Read(*matrix.scales, first / unit * scale_cols, scales));
    }
    band.data = data.data();
    band.scales = matrix.scales != nullptr ? scales.data() : nullptr;
    ECPHORY_RETURN_IF_ERROR(visit(band, first));
  }
  return {};
}

Status EncodeMatrix(const SourceFiles& files, const StoredMatrix& matrix,
                    DType dtype, const ByteSink& sink) {
  const DTypeInfo& type = GetDTypeInfo(dtype);
  const size_t out_row_bytes =
      matrix.cols / type.block_values * type.block_bytes;
  std::vector<float> values(matrix.cols);
  std::vector<uint8_t> out;
  return ForEachBand(files, matrix,
                     [&](const Matrix& band, uint64_t first) -> Status {
                       out.resize(band.rows * out_row_bytes);
                       for (size_t r = 0; r < band.rows; ++r) {
                         if (!EncodeBandRow(band, r, dtype, values.data(),
                                            out.data() + r * out_row_bytes)) {
                           return NotFinite(files, matrix, first + r, dtype);
                         }
                       }
                       return sink(out);
                     });
}

Result<F16Fit> CheckF16(const SourceFiles& files, const StoredMatrix& matrix) {
  F16Fit fit;
  std::vector<float> values(matrix.cols);
  ECPHORY_RETURN_IF_ERROR(
      ForEachBand(files, matrix, [&](const Matrix& band, uint64_t) -> Status {
        for (size_t r = 0; r < band.rows; ++r) {
          DequantizeRow(band, r, values.data());
          for (const float x : values) {
            const float half = F16ToF32(F32ToF16(x));
            fit.finite = fit.finite && std::isfinite(half);
            fit.exact = fit.exact && half == x;
          }
        }
        return {};
      }));
  return fit;
}

Status InterleaveTable(const SourceFiles& files, const StoredTable& table,
                       const ByteSink& sink) {
  const size_t width = table.width, scales_width = table.width / kBlock;
  const size_t row_bytes = width + scales_width;
  const uint64_t batch = std::max<uint64_t>(kBufferBytes / row_bytes, 1);
  std::vector<uint8_t> codes, scales, rows;
  for (uint64_t first = 0; first < table.rows; first += batch) {
    const size_t count = std::min(batch, table.rows - first);
    codes.resize(count * width);
    scales.resize(count * scales_width);
    rows.resize(count * row_bytes);
    ECPHORY_RETURN_IF_ERROR(files.Read(*table.data, first * width, codes));
    ECPHORY_RETURN_IF_ERROR(
        files.Read(*table.scales, first * scales_width, scales));
    for (size_t r = 0; r < count; ++r) {
      uint8_t* row = rows.data() + r * row_bytes;
      std::memcpy(row, codes.data() + r * width, width);
      std::memcpy(row + width, scales.data() + r * scales_width, scales_width);
    }
    ECPHORY_RETURN_IF_ERROR(sink(rows));
  }
  return {};
}

bool EncodeQ8Weights(const float* x, size_t cols, uint8_t* out) {
  for (size_t c = 0; c < cols; c += kBlock, out += kQ8Bytes) {
    float amax = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      if (!std::isfinite(x[c + i])) return false;
      amax = std::max(amax, std::fabs(x[c + i]));
    }
    const float d = amax / 127;
    const uint16_t stored = F32ToF16(d);
    if (!std::isfinite(F16ToF32(stored))) return false;
    StoreU16(stored, out);
    const float inverse = d > 0 ? 1 / d : 0;
    for (size_t i = 0; i < kBlock; ++i) {
      // Below the smallest normal fp32, 1 / d overflows: such blocks are 0.
      const float q = std::isfinite(inverse) ? x[c + i] * inverse : 0;
      out[2 + i] = static_cast<uint8_t>(
          static_cast<int8_t>(std::lround(std::clamp(q, -127.0f, 127.0f))));
    }
  }
  return true;
}

void RepackMxfp4Row(const uint8_t* codes, const uint8_t* scales, size_t cols,
                    uint8_t* out) {
  const auto code = [codes](size_t col) -> uint8_t {
    const uint8_t pair = codes[col / 2];
    return col % 2 == 0 ? pair & 15 : pair >> 4;
  };
  for (size_t c = 0; c < cols; c += kBlock, out += kMxfp4Bytes) {
    out[0] = scales[c / kBlock];
    for (size_t i = 0; i < kBlock / 2; ++i) {
      out[1 + i] =
          static_cast<uint8_t>(code(c + i) | code(c + kBlock / 2 + i) << 4);
    }
  }
}

}  // namespace ecphory
