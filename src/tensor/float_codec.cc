#include "tensor/float_codec.h"

#include <algorithm>
#include <cmath>

namespace ecphory {

namespace {

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kMantissaMask = 0x007fffffu;
constexpr uint32_t kQuietNaN = 0x7fc00000u;

// 2^exponent for exponents of normal fp32 numbers.
float Pow2(int exponent) {
  return F32FromBits(static_cast<uint32_t>(exponent + 127) << 23);
}

// Nearest integer, ties to even, for 0 <= x < 2^22: the addition leaves no
// bits for a fraction.
uint32_t RoundHalfEven(float x) {
  const float shifted = x + 0x1p23f;
  return static_cast<uint32_t>(shifted - 0x1p23f);
}

// floor(log2(x)) of a positive finite x, and at least `lowest`, the exponent
// below which a small format's codes are evenly spaced.
int BinadeOf(float x, int lowest) {
  return std::max(static_cast<int>(F32Bits(x) >> 23) - 127, lowest);
}

}  // namespace

float F16ToF32(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16;
  const uint32_t exponent = (x >> 10) & 0x1fu;
  const uint32_t mantissa = x & 0x3ffu;
  if (exponent == 0x1f) {  // infinity, or a NaN made quiet
    const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0;
    return F32FromBits(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return F32FromBits(sign | F32Bits(magnitude));
  }
  return F32FromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t F32ToF16(float x) {
  const uint32_t bits = F32Bits(x);
  const uint16_t sign = static_cast<uint16_t>((bits & kSignBit) >> 16);
  const float magnitude = F32FromBits(bits & ~kSignBit);
  if (std::isnan(x)) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x1ffu));
  }
  // 65520 is the midpoint between 65504, the largest value, and 65536.
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  // A normal value is 1024 to 2048 steps of its binade; the 1024 carries into
  // the exponent field, and a value rounded up to 2048 carries once more.
  const int exponent = BinadeOf(magnitude, -14);
  const uint32_t steps = RoundHalfEven(magnitude * Pow2(10 - exponent));
  const uint32_t code = (static_cast<uint32_t>(exponent + 14) << 10) + steps;
  return static_cast<uint16_t>(sign | code);
}

float E4M3ToF32(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = (code >> 3) & 0xfu;
  const uint32_t mantissa = code & 0x7u;
  if ((code & 0x7f) == 0x7f) return F32FromBits(sign | kQuietNaN);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return F32FromBits(sign | F32Bits(magnitude));
  }
  return F32FromBits(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

uint8_t F32ToE4M3(float x) {
  const uint32_t bits = F32Bits(x);
  const uint8_t sign = static_cast<uint8_t>((bits & kSignBit) >> 24);
  const float magnitude = F32FromBits(bits & ~kSignBit);
  // 464 is the midpoint between 448 and the 480 that the NaN code displaces.
  if (!(magnitude <= 464.0f)) return static_cast<uint8_t>(sign | 0x7fu);
  const int exponent = BinadeOf(magnitude, -6);
  const uint32_t steps = RoundHalfEven(magnitude * Pow2(3 - exponent));
  const uint32_t code = (static_cast<uint32_t>(exponent + 6) << 3) + steps;
  return static_cast<uint8_t>(sign | code);
}

float E8M0ToF32(uint8_t code) {
  if (code == 0) return 0x1p-127f;
  if (code == 255) return F32FromBits(kQuietNaN);
  return F32FromBits(static_cast<uint32_t>(code) << 23);
}

float E2M1ToF32(uint8_t code) {
  constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

uint8_t F32ToE2M1(float x) {
  const uint32_t sign = (F32Bits(x) & kSignBit) >> 28;
  const float magnitude = std::fmin(std::fabs(x), 6.0f);
  // Codes are 1/2 apart up to 2 (code 4), 1 up to 4 (code 6), then 2.
  uint32_t code;
  if (magnitude < 2) {
    code = RoundHalfEven(magnitude * 2);
  } else if (magnitude < 4) {
    code = RoundHalfEven(magnitude) + 2;
  } else {
    code = RoundHalfEven(magnitude * 0.5f) + 4;
  }
  return static_cast<uint8_t>(sign | code);
}

uint8_t CeilPow2Code(float x) {
  const uint32_t bits = F32Bits(x);
  const uint32_t exponent = bits >> 23;
  return static_cast<uint8_t>(exponent + ((bits & kMantissaMask) != 0));
}

}  // namespace ecphory
