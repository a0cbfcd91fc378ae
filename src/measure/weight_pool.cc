#include "measure/weight_pool.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "tensor/float_codec.h"

namespace ecphory::measure {

namespace {

// A multiple of every format's block, and long enough that rows differ.
size_t PatternBytes(WeightFormat format) {
  const Matrix row{.format = format, .rows = 1, .cols = 256};
  return 4096 * row.row_bytes();
}

template <typename Code>
void FillCodes(RandomBits& bits, Code (*encode)(float),
               std::vector<uint8_t>& out) {
  for (size_t i = 0; i + sizeof(Code) <= out.size(); i += sizeof(Code)) {
    const Code code = encode(bits.Signed());
    std::memcpy(&out[i], &code, sizeof(code));
  }
}

float Same(float x) { return x; }

std::vector<uint8_t> Pattern(WeightFormat format) {
  std::vector<uint8_t> out(PatternBytes(format));
  RandomBits bits(1);
  switch (format) {
    case WeightFormat::kF32: FillCodes<float>(bits, Same, out); return out;
    case WeightFormat::kF16:
      FillCodes<uint16_t>(bits, F32ToF16, out);
      return out;
    case WeightFormat::kBF16:
      FillCodes<uint16_t>(bits, F32ToBF16, out);
      return out;
    default: break;
  }
  // Any byte is a code. Two bits are left out so that none is a NaN or an
  // infinity where it is a scale, as half a float or as an exponent.
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(bits.Next() & 0x3f);
  const uint16_t q8_scale = F32ToF16(0.01f);
  if (format == WeightFormat::kQ8_0) {
    for (size_t i = 0; i < out.size(); i += 34) {
      std::memcpy(&out[i], &q8_scale, sizeof(q8_scale));
    }
  } else if (format == WeightFormat::kMXFP4) {
    for (size_t i = 0; i < out.size(); i += 17) out[i] = 124;
  }
  return out;
}

size_t ScaleBytes(WeightFormat format, size_t rows, size_t cols) {
  switch (format) {
    case WeightFormat::kFp8Tile32: return CeilDiv(rows, 32) * CeilDiv(cols, 32);
    case WeightFormat::kFp4Row32: return rows * (cols / 32);
    default: return 0;
  }
}

}  // namespace

std::vector<WeightFormat> WeightFormats() {
  std::vector<WeightFormat> formats;
  for (uint8_t i = 0; i < UINT8_MAX; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (std::strcmp(WeightFormatName(format), "unknown") == 0) break;
    formats.push_back(format);
  }
  return formats;
}

std::string FigureName(WeightFormat format) {
  std::string name = WeightFormatName(format);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

Result<WeightPool> WeightPool::Create(WeightFormat format, size_t bytes,
                                      BenchPages pages, ThreadPool& pool) {
  WeightPool weights;
  weights.format_ = format;
  ECPHORY_ASSIGN_OR_RETURN(weights.data_, Buffer::Create(bytes, pages));
  const std::vector<uint8_t> pattern = Pattern(format);
  weights.data_.FillPattern(pattern.data(), pattern.size(), pool);
  if (ScaleBytes(format, 32, 32) > 0) {
    // At most one scale to 16 bytes of codes.
    ECPHORY_ASSIGN_OR_RETURN(weights.scales_,
                             Buffer::Create(bytes / 16, pages));
    const std::vector<uint8_t> scales(4096, 124);
    weights.scales_.FillPattern(scales.data(), scales.size(), pool);
  }
  return weights;
}

Matrix WeightPool::Next(size_t rows, size_t cols) {
  Matrix matrix{.format = format_, .rows = rows, .cols = cols};
  const size_t bytes = rows * matrix.row_bytes();
  const size_t scales = ScaleBytes(format_, rows, cols);
  ECPHORY_CHECK(bytes <= data_.size() && scales <= scales_.size());
  if (next_ + bytes > data_.size()) next_ = 0;
  if (next_scale_ + scales > scales_.size()) next_scale_ = 0;
  matrix.data = data_.data() + next_;
  matrix.scales = scales > 0 ? scales_.data() + next_scale_ : nullptr;
  next_ += bytes;
  next_scale_ += scales;
  return matrix;
}

}  // namespace ecphory::measure
