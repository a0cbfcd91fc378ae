#include "tensor/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

constexpr float kE4M3Max = 448.0f;
constexpr float kE2M1Max = 6.0f;
constexpr uint8_t kE8M0NaN = 255;
constexpr uint8_t kE4M3NaN = 0x7f;

// Largest magnitude; NaN when the block holds one, so that it spreads to the
// block's scale instead of vanishing in a code.
float AbsMax(const float* x, size_t n) {
  float amax = 0;
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return x[i];
    amax = std::max(amax, std::fabs(x[i]));
  }
  return amax;
}

// 2^ceil(log2(max(amax, floor) * inverse_max)) as an e8m0 code.
uint8_t Pow2Scale(float amax, float floor, float inverse_max) {
  if (!std::isfinite(amax)) return kE8M0NaN;
  return CeilPow2Code(std::max(amax, floor) * inverse_max);
}

// The e4m3 scale code of a kFp4Block16 block. It saturates at 448 (amax above
// 6 * 448), where a plain cast would give NaN.
uint8_t E4M3Scale(float amax) {
  if (!std::isfinite(amax)) return kE4M3NaN;
  const float scale = std::max(amax, kE2M1Max * 0x1p-9f) / kE2M1Max;
  return F32ToE4M3(std::min(scale, kE4M3Max));
}

// Two e2m1 codes a byte, the even value in the low nibble.
void EncodeE2M1(const float* x, size_t n, float scale, uint8_t* out) {
  for (size_t i = 0; i < n; i += 2) {
    const uint8_t low = F32ToE2M1(x[i] / scale);
    const uint8_t high = F32ToE2M1(x[i + 1] / scale);
    out[i / 2] = static_cast<uint8_t>(low | (high << 4));
  }
}

void DecodeE2M1(const uint8_t* in, size_t n, float scale, float* x) {
  for (size_t i = 0; i < n; i += 2) {
    x[i] = E2M1ToF32(in[i / 2] & 15) * scale;
    x[i + 1] = E2M1ToF32(in[i / 2] >> 4) * scale;
  }
}

void EncodeFp8Block32(const float* x, size_t dim, uint8_t* out) {
  uint8_t* scales = out + dim;
  for (size_t i = 0; i < dim; i += 32) {
    const uint8_t code = Pow2Scale(AbsMax(x + i, 32), 1e-4f, 1.0f / kE4M3Max);
    const float scale = E8M0ToF32(code);
    scales[i / 32] = code;
    for (size_t j = i; j < i + 32; ++j) {
      out[j] = F32ToE4M3(std::clamp(x[j] / scale, -kE4M3Max, kE4M3Max));
    }
  }
}

void DecodeFp8Block32(const uint8_t* in, size_t dim, float* x) {
  const uint8_t* scales = in + dim;
  for (size_t i = 0; i < dim; ++i) {
    x[i] = E4M3ToF32(in[i]) * E8M0ToF32(scales[i / 32]);
  }
}

void EncodeFp4Block32(const float* x, size_t dim, uint8_t* out) {
  uint8_t* scales = out + dim / 2;
  for (size_t i = 0; i < dim; i += 32) {
    const uint8_t code =
        Pow2Scale(AbsMax(x + i, 32), kE2M1Max * 0x1p-126f, 1.0f / kE2M1Max);
    scales[i / 32] = code;
    EncodeE2M1(x + i, 32, E8M0ToF32(code), out + i / 2);
  }
}

void DecodeFp4Block32(const uint8_t* in, size_t dim, float* x) {
  const uint8_t* scales = in + dim / 2;
  for (size_t i = 0; i < dim; i += 32) {
    DecodeE2M1(in + i / 2, 32, E8M0ToF32(scales[i / 32]), x + i);
  }
}

void EncodeFp4Block16(const float* x, size_t dim, uint8_t* out) {
  uint8_t* scales = out + dim / 2;
  for (size_t i = 0; i < dim; i += 16) {
    const uint8_t code = E4M3Scale(AbsMax(x + i, 16));
    scales[i / 16] = code;
    EncodeE2M1(x + i, 16, E4M3ToF32(code), out + i / 2);
  }
}

void DecodeFp4Block16(const uint8_t* in, size_t dim, float* x) {
  const uint8_t* scales = in + dim / 2;
  for (size_t i = 0; i < dim; i += 16) {
    DecodeE2M1(in + i / 2, 16, E4M3ToF32(scales[i / 16]), x + i);
  }
}

}  // namespace

const char* RowFormatName(RowFormat format) {
  switch (format) {
    case RowFormat::kF32: return "f32";
    case RowFormat::kFp8Block32: return "fp8_block32";
    case RowFormat::kFp4Block16: return "fp4_block16";
    case RowFormat::kFp4Block32: return "fp4_block32";
  }
  return "unknown";
}

size_t RowBlock(RowFormat format) {
  switch (format) {
    case RowFormat::kF32: return 1;
    case RowFormat::kFp8Block32: return 32;
    case RowFormat::kFp4Block16: return 16;
    case RowFormat::kFp4Block32: return 32;
  }
  return 1;
}

size_t RowBytes(RowFormat format, size_t dim) {
  switch (format) {
    case RowFormat::kF32: return dim * sizeof(float);
    case RowFormat::kFp8Block32: return dim + dim / 32;
    case RowFormat::kFp4Block16: return dim / 2 + dim / 16;
    case RowFormat::kFp4Block32: return dim / 2 + dim / 32;
  }
  return 0;
}

void EncodeRow(RowFormat format, const float* x, size_t dim, uint8_t* out) {
  ECPHORY_DCHECK(dim % RowBlock(format) == 0);
  switch (format) {
    case RowFormat::kF32: std::memcpy(out, x, dim * sizeof(float)); return;
    case RowFormat::kFp8Block32: EncodeFp8Block32(x, dim, out); return;
    case RowFormat::kFp4Block16: EncodeFp4Block16(x, dim, out); return;
    case RowFormat::kFp4Block32: EncodeFp4Block32(x, dim, out); return;
  }
}

void DecodeRow(RowFormat format, const uint8_t* in, size_t dim, float* x) {
  ECPHORY_DCHECK(dim % RowBlock(format) == 0);
  switch (format) {
    case RowFormat::kF32: std::memcpy(x, in, dim * sizeof(float)); return;
    case RowFormat::kFp8Block32: DecodeFp8Block32(in, dim, x); return;
    case RowFormat::kFp4Block16: DecodeFp4Block16(in, dim, x); return;
    case RowFormat::kFp4Block32: DecodeFp4Block32(in, dim, x); return;
  }
}

}  // namespace ecphory
