// Scalar definitions of the small floating-point formats. These are the
// specification that every vector path is held to.
#pragma once

#include <bit>
#include <cstdint>

namespace ecphory {

inline float F32FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t F32Bits(float x) { return std::bit_cast<uint32_t>(x); }

inline float BF16ToF32(uint16_t x) {
  return F32FromBits(static_cast<uint32_t>(x) << 16);
}
// Round to nearest even; NaN stays NaN (quiet).
inline uint16_t F32ToBF16(float x) {
  const uint32_t bits = F32Bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float RoundToBF16(float x) { return BF16ToF32(F32ToBF16(x)); }

float F16ToF32(uint16_t x);
uint16_t F32ToF16(float x);  // nearest even, overflow to infinity

// e4m3 'fn': bias 7, subnormal step 2^-9, max 448, NaN 0x7f/0xff.
float E4M3ToF32(uint8_t code);
// Nearest even; |x| <= 464 rounds to at most 448, larger and NaN give NaN.
uint8_t F32ToE4M3(float x);

// 2^(code - 127); code 0 is an fp32 subnormal, 255 is NaN.
float E8M0ToF32(uint8_t code);

// Magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign.
float E2M1ToF32(uint8_t code);
// Nearest, ties to the even code; |x| > 6 clamps to 6.
uint8_t F32ToE2M1(float x);

// The e8m0 code of 2^ceil(log2(x)), by the bits of x: exponent, plus one when
// any mantissa bit is set. x > 0, finite.
uint8_t CeilPow2Code(float x);

}  // namespace ecphory
