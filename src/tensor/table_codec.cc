#include "tensor/table_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/little_endian.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

constexpr size_t kBlock = kTableBlock;
constexpr size_t kQ8Bytes = 2 + kBlock;  // of a block
constexpr size_t kQ4Bytes = 2 + kBlock / 2;
constexpr size_t kQ41Bytes = 4 + kBlock / 2;
constexpr uint16_t kF16NaN = 0x7e00;

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

// Scales are tested apart: infinity times 0 is found by the values, but a NaN
// or an infinity must not depend on its codes.
bool DecodeQ8(const uint8_t* row, size_t width, float* out) {
  bool finite = true;
  for (size_t block = 0; block < width; block += kBlock, row += kQ8Bytes) {
    const float d = F16ToF32(LoadLE<uint16_t>(row));
    finite &= IsFinite(d);
    for (size_t i = 0; i < kBlock; ++i) {
      const float q = static_cast<float>(static_cast<int8_t>(row[2 + i]));
      out[block + i] = RoundToBF16(d * q);
    }
  }
  return finite;
}

// The i-th of a block's 32 codes: low nibbles are 0..15.
float Nibble(const uint8_t* codes, size_t i) {
  const uint8_t byte = codes[i % (kBlock / 2)];
  return static_cast<float>(i < kBlock / 2 ? byte & 15 : byte >> 4);
}

bool DecodeQ4(const uint8_t* row, size_t width, float* out) {
  bool finite = true;
  for (size_t block = 0; block < width; block += kBlock, row += kQ4Bytes) {
    const float d = F16ToF32(LoadLE<uint16_t>(row));
    finite &= IsFinite(d);
    for (size_t i = 0; i < kBlock; ++i) {
      out[block + i] = RoundToBF16(d * (Nibble(row + 2, i) - 8));
    }
  }
  return finite;
}

// The product is exact in fp32, so that a fused multiply-add is the same.
bool DecodeQ41(const uint8_t* row, size_t width, float* out) {
  bool finite = true;
  for (size_t block = 0; block < width; block += kBlock, row += kQ41Bytes) {
    const float d = F16ToF32(LoadLE<uint16_t>(row));
    const float m = F16ToF32(LoadLE<uint16_t>(row + 2));
    finite &= IsFinite(d) && IsFinite(m);
    for (size_t i = 0; i < kBlock; ++i) {
      out[block + i] = RoundToBF16(d * Nibble(row + 4, i) + m);
    }
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

// The f16 scale of a Q8_0 block.
uint16_t Q8Scale(float amax) {
  if (!IsFinite(amax)) return kF16NaN;
  const uint16_t nearest = F32ToF16(amax / 127);
  const bool fits = amax <= F16ToF32(nearest) * 127.5f;
  return static_cast<uint16_t>(fits ? nearest : nearest + 1);
}

}  // namespace

const char* TableCodecName(TableCodec codec) {
  switch (codec) {
    case TableCodec::kRow264: return "e4m3_e8m0_32_row264";
    case TableCodec::kReleasedPair: return "released pair";
    case TableCodec::kBf16: return "bf16";
    case TableCodec::kQ8_0: return "Q8_0";
    case TableCodec::kQ4_0: return "Q4_0";
    case TableCodec::kQ4_1: return "Q4_1";
  }
  return "unknown";
}

size_t TableRowBytes(TableCodec codec, size_t width) {
  switch (codec) {
    case TableCodec::kRow264: return width + width / kBlock;
    case TableCodec::kReleasedPair: return width;
    case TableCodec::kBf16: return 2 * width;
    case TableCodec::kQ8_0: return width / kBlock * kQ8Bytes;
    case TableCodec::kQ4_0: return width / kBlock * kQ4Bytes;
    case TableCodec::kQ4_1: return width / kBlock * kQ41Bytes;
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
    case TableCodec::kQ8_0: return DecodeQ8(row, width, out);
    case TableCodec::kQ4_0: return DecodeQ4(row, width, out);
    case TableCodec::kQ4_1: return DecodeQ41(row, width, out);
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

void EncodeQ8Row(const float* x, size_t width, uint8_t* row) {
  for (size_t block = 0; block < width; block += kBlock, row += kQ8Bytes) {
    const uint16_t scale = Q8Scale(LargestMagnitude(x + block, kBlock));
    std::memcpy(row, &scale, 2);
    const float d = F16ToF32(scale);
    const bool broken = !IsFinite(d);
    for (size_t i = 0; i < kBlock; ++i) {
      const float q = broken || d == 0 ? 0 : std::nearbyint(x[block + i] / d);
      row[2 + i] = static_cast<uint8_t>(
          static_cast<int8_t>(std::clamp(q, -127.0f, 127.0f)));
    }
  }
}

}  // namespace ecphory
