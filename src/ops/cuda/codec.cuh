// The small floating-point formats on the device: the values of
// tensor/float_codec.h, which the shared operator tests hold this to.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "tensor/row_codec.h"

namespace ecphory::cuda {

__device__ inline float BF16ToF32(uint16_t x) {
  return __uint_as_float(static_cast<uint32_t>(x) << 16);
}

// As the upper one of a pair, which is the float: a conversion of one number
// takes four times as long as one of two.
__device__ inline float RoundToBF16(float x) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
  return __uint_as_float(bits);
}

__device__ inline float MaybeRound(float x, bool round) {
  return round ? RoundToBF16(x) : x;
}

__device__ inline float F16ToF32(uint16_t x) {
  return __half2float(__ushort_as_half(x));
}

__device__ inline float E4M3ToF32(uint8_t code) {
  return F16ToF32(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3).x);
}

// |x| <= 448 or NaN.
__device__ inline uint8_t F32ToE4M3(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

__device__ inline float E8M0ToF32(uint8_t code) {
  // By selection, not branches: 0 is 2^-127 and 255 is NaN.
  const uint32_t bits = static_cast<uint32_t>(code) << 23;
  const uint32_t low = code == 0 ? 0x00400000u : bits;
  return __uint_as_float(code == 255 ? 0x7fc00000u : low);
}

__device__ inline float E2M1ToF32(uint8_t code) {
  // 0.5 * (0 1 2 3 4 6 8 12), a nibble each.
  const uint32_t twice = 0xC8643210u >> (4 * (code & 7)) & 15;
  const float magnitude = 0.5f * static_cast<float>(twice);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// Nearest, ties to the even code, by counting the midpoints passed.
__device__ inline uint8_t F32ToE2M1(float x) {
  const float a = fminf(fabsf(x), 6.0f);  // NaN is 6, as in the definition
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) +
                   (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(code | (signbit(x) ? 8 : 0));
}

// The e8m0 code of 2^ceil(log2(x)), x > 0 and finite.
__device__ inline uint8_t CeilPow2Code(float x) {
  const uint32_t bits = __float_as_uint(x);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7fffffu) != 0));
}

// Value `i` of a packed row of `dim`.
__device__ inline float RowValue(RowFormat format, const uint8_t* row,
                                 size_t dim, size_t i) {
  switch (format) {
    case RowFormat::kF32: {
      const uint8_t* p = row + 4 * i;  // rows need not be aligned
      return __uint_as_float(p[0] | p[1] << 8 | p[2] << 16 |
                             static_cast<uint32_t>(p[3]) << 24);
    }
    case RowFormat::kFp8Block32:
      return E4M3ToF32(row[i]) * E8M0ToF32(row[dim + i / 32]);
    case RowFormat::kFp4Block16:
      return E2M1ToF32(row[i / 2] >> (4 * (i & 1)) & 15) *
             E4M3ToF32(row[dim / 2 + i / 16]);
    case RowFormat::kFp4Block32:
      return E2M1ToF32(row[i / 2] >> (4 * (i & 1)) & 15) *
             E8M0ToF32(row[dim / 2 + i / 32]);
  }
  return 0;
}

}  // namespace ecphory::cuda
