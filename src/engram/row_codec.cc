#include "engram/row_codec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/float_codec.h"

namespace ecphory::engram {

namespace {

constexpr size_t kBlock = 32;  // values per e8m0 scale

bool IsFinite(float x) { return (F32Bits(x) & 0x7f800000u) != 0x7f800000u; }

const std::array<float, 256>& E4M3Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v;
    for (size_t code = 0; code < v.size(); ++code) {
      v[code] = E4M3ToF32(static_cast<uint8_t>(code));
    }
    return v;
  }();
  return values;
}

// A NaN code or scale makes the product NaN, so one test finds every fault. The
// product itself is exact in fp32 unless it overflows: a code has four
// significant bits and no value lies below 2^-136.
bool DecodeE4M3(const uint8_t* codes, const uint8_t* scales, size_t width,
                float* out) {
  const std::array<float, 256>& values = E4M3Values();
  bool finite = true;
  for (size_t block = 0; block < width; block += kBlock) {
    const float scale = E8M0ToF32(scales[block / kBlock]);
    for (size_t i = block; i < block + kBlock; ++i) {
      out[i] = RoundToBF16(values[codes[i]] * scale);
      finite &= IsFinite(out[i]);
    }
  }
  return finite;
}

bool DecodeBF16(const uint8_t* row, size_t width, float* out) {
  bool finite = true;
  for (size_t i = 0; i < width; ++i) {
    out[i] = BF16ToF32(static_cast<uint16_t>(row[2 * i] | row[2 * i + 1] << 8));
    finite &= IsFinite(out[i]);
  }
  return finite;
}

float LargestMagnitude(const float* x, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!IsFinite(x[i])) return F32FromBits(0x7f800000u);
    largest = std::max(largest, std::fabs(x[i]));
  }
  return largest;
}

// The smallest e8m0 code that brings `amax` to at most 448 = 0.875 * 2^9; 255
// for a block that is not finite.
uint8_t ScaleCode(float amax) {
  if (!IsFinite(amax)) return 255;
  if (amax == 0) return 0;
  int exponent;
  const float fraction = std::frexp(amax, &exponent);
  if (fraction <= 0.875f) --exponent;
  return static_cast<uint8_t>(std::clamp(exponent - 8 + 127, 0, 254));
}

}  // namespace

const char* TableCodecName(TableCodec codec) {
  switch (codec) {
    case TableCodec::kRow264: return "e4m3_e8m0_32_row264";
    case TableCodec::kReleasedPair: return "released pair";
    case TableCodec::kBf16: return "bf16";
  }
  return "unknown";
}

size_t TableRowBytes(TableCodec codec, size_t width) {
  switch (codec) {
    case TableCodec::kRow264: return width + width / kBlock;
    case TableCodec::kReleasedPair: return width;
    case TableCodec::kBf16: return 2 * width;
  }
  return 0;
}

size_t TableScaleBytes(TableCodec codec, size_t width) {
  return codec == TableCodec::kReleasedPair ? width / kBlock : 0;
}

bool DecodeTableRow(TableCodec codec, const uint8_t* row, const uint8_t* scales,
                    size_t width, float* out) {
  switch (codec) {
    case TableCodec::kRow264: return DecodeE4M3(row, row + width, width, out);
    case TableCodec::kReleasedPair: return DecodeE4M3(row, scales, width, out);
    case TableCodec::kBf16: return DecodeBF16(row, width, out);
  }
  return false;
}

void EncodeE4M3Row(const float* x, size_t width, uint8_t* codes,
                   uint8_t* scales) {
  for (size_t block = 0; block < width; block += kBlock) {
    const uint8_t scale = ScaleCode(LargestMagnitude(x + block, kBlock));
    scales[block / kBlock] = scale;
    for (size_t i = block; i < block + kBlock; ++i) {
      codes[i] = F32ToE4M3(std::ldexp(x[i], 127 - scale));
    }
  }
}

}  // namespace ecphory::engram
