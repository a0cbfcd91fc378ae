// Values of the scale bytes, for kernels that need one per 16 or 32 values and
// cannot afford a call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/float_codec.h"

namespace ecphory {

struct CodeTables {
  std::array<float, 256> e8m0;
  std::array<float, 256> e4m3;
  // 2^8 times e8m0: the unit of e4m3 codes that are read as half precision.
  // Infinite where fp32 ends, above kLargestFolded.
  static constexpr size_t kLargestFolded = 254 - 8;
  std::array<float, 256> e8m0_of_e4m3;

  // By bits: whoever asks first may be taking denormals for zero, and 2^-127 is
  // one (DenormalsAreZero).
  CodeTables() {
    for (size_t code = 0; code < 256; ++code) {
      e8m0[code] = E8M0ToF32(static_cast<uint8_t>(code));
      e8m0_of_e4m3[code] = code <= kLargestFolded
                               ? E8M0ToF32(static_cast<uint8_t>(code + 8))
                               : 256 * e8m0[code];
      e4m3[code] = E4M3ToF32(static_cast<uint8_t>(code));
    }
  }
};

inline const CodeTables& GetCodeTables() {
  static const CodeTables tables;
  return tables;
}

// What the 16 e2m1 codes stand for, times each e8m0 scale, as bf16, which holds
// all of them exactly: the low bytes and the high ones, for look-ups by code.
// 8 KB, of which a matrix takes few lines.
struct ScaledE2M1 {
  struct Bytes {
    alignas(32) uint8_t low[16];
    uint8_t high[16];
  };
  Bytes by_scale[256];

  // By bits, like CodeTables.
  ScaledE2M1() {
    for (int scale = 0; scale < 256; ++scale) {
      for (int code = 0; code < 16; ++code) {
        const uint16_t bits = Bits(scale, code);
        by_scale[scale].low[code] = static_cast<uint8_t>(bits & 0xff);
        by_scale[scale].high[code] = static_cast<uint8_t>(bits >> 8);
      }
    }
  }
  static uint16_t Bits(int scale, int code) {
    constexpr int kInfinity = 0x7f80, kNan = 0x7fc0, kOne = 0x80;
    const int sign = code >> 3 << 15, exponent = code >> 1 & 3, half = code & 1;
    const auto with_sign = [&](int bits) {
      return static_cast<uint16_t>(sign | bits);
    };
    if (scale == 255) return kNan;
    if ((code & 7) == 0) return with_sign(0);
    // 1 or 1.5, as bf16 has them, times 2^(place - 127).
    const int significand = exponent == 0 ? kOne : kOne | half << 6;
    const int place = scale + (exponent == 0 ? -1 : exponent - 1);
    if (place >= 255) return with_sign(kInfinity);
    if (place <= 0) return with_sign(significand >> (1 - place));
    return with_sign(place << 7 | (significand & ~kOne));
  }
};

inline const ScaledE2M1& GetScaledE2M1() {
  static const ScaledE2M1 tables;
  return tables;
}

// The magnitudes of e4m3 codes as bf16, byte by byte, for look-ups by 7 bits;
// and where in 64 codes each byte of a look-up comes from, so that unpacking
// bytes to pairs of bf16 within 128 bits leaves the halves of the lanes as
// vectors in order: lane l of the k-th pair holds codes 32 k + l and, above it,
// 32 k + 16 + l.
struct E4M3Bytes {
  alignas(64) uint8_t high[128];
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t places[64];

  E4M3Bytes() {
    for (size_t code = 0; code < 128; ++code) {
      const uint16_t bits = F32ToBF16(E4M3ToF32(static_cast<uint8_t>(code)));
      high[code] = static_cast<uint8_t>(bits >> 8 & 0x7f);
      low[code] = static_cast<uint8_t>(bits & 0xff);
    }
    for (size_t i = 0; i < 64; ++i) {
      const size_t lane = i / 16 * 4 + i % 8 / 2;
      places[i] = static_cast<uint8_t>(i % 16 / 8 * 32 + i % 2 * 16 + lane);
    }
  }
};

inline const E4M3Bytes& GetE4M3Bytes() {
  static const E4M3Bytes bytes;
  return bytes;
}

}  // namespace ecphory
