// Constants of the vector decoder of e4m3 rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory::engram {

// e8m0 scales for which every e4m3 value but zero is a normal number:
// 2^-9 * 2^(10 - 127) = 2^-126, and 448 * 2^(246 - 127) < 2^128. There the
// product with a code is exact in bf16.
inline constexpr unsigned kLowScale = 10;
inline constexpr unsigned kHighScale = 246;

// Exponent and mantissa of code * 2^(kLowScale - 127) as bf16 has them, divided
// by 2^4: for the magnitudes from 16 on (an exponent of at least 2) the code
// plus kFieldOffset, below as listed.
inline constexpr uint8_t kFieldOffset = 24;
alignas(16) inline constexpr uint8_t kLowFields[16] = {
    0, 8, 16, 20, 24, 26, 28, 30, 32, 33, 34, 35, 36, 37, 38, 39};

// The same, as the two bytes of the bf16 word; the NaN code has kNaNHighByte,
// above that of every number.
inline constexpr uint8_t kNaNHighByte = 0x7f;
struct E4M3Words {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};
constexpr E4M3Words MakeE4M3Words() {
  E4M3Words words{};
  for (unsigned code = 0; code < 128; ++code) {
    const unsigned field = code < 16 ? kLowFields[code] : code + kFieldOffset;
    words.low[code] = static_cast<uint8_t>(field << 4);
    words.high[code] = static_cast<uint8_t>(field >> 4);
  }
  words.high[127] = kNaNHighByte;
  return words;
}
alignas(64) inline constexpr E4M3Words kE4M3Words = MakeE4M3Words();

// What a scale adds to the words of kLowScale, for two words at once.
struct ScaleBias {
  uint32_t twice[256];
};
constexpr ScaleBias MakeScaleBias() {
  ScaleBias bias{};
  for (unsigned scale = kLowScale; scale <= kHighScale; ++scale) {
    bias.twice[scale] = (scale - kLowScale) * 0x00800080u;
  }
  return bias;
}
inline constexpr ScaleBias kScaleBias = MakeScaleBias();

// Eights of 32 and of 64 bytes in the order that leaves them sorted after
// interleaving lower and upper halves of 16 bytes.
alignas(64) inline constexpr uint64_t kInterleaveOrder[3][8] = {
    {}, {0, 2, 1, 3}, {0, 4, 1, 5, 2, 6, 3, 7}};

}  // namespace ecphory::engram
