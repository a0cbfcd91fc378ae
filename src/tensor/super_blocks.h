// ggml's formats of 256 values a block, as they lie in a file: the definition.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

inline constexpr size_t kSuperBlock = 256;  // values

// Eight parts of 32 values: value = d * scale * q - dmin * min, all of a part
// with the same 6-bit scale and min.
struct Q4KBlock {
  uint16_t d;          // f16
  uint16_t dmin;       // f16
  uint8_t scales[12];  // scale and min of the parts, packed (Q4KScale, Q4KMin)
  uint8_t
      codes[128];  // bytes 32c ..: low nibbles are part 2c, high ones 2c + 1
};
static_assert(sizeof(Q4KBlock) == 144);

// Sixteen parts of 16 values: value = d * scale * q - dmin * min.
struct Q2KBlock {
  uint8_t scales[16];  // of a part: low nibble scale, high nibble min
  uint8_t codes[64];   // byte 32h + i, bits 2s and 2s + 1: value 128h + 32s + i
  uint16_t d;          // f16
  uint16_t dmin;       // f16
};
static_assert(sizeof(Q2KBlock) == 84);

// Eight parts of 32 values, each four entries of the grid of tensor/iq2_xxs.h:
// value = d * (0.5 + scale) / 4 * magnitude * sign.
struct Iq2xxsBlock {
  struct Part {
    uint8_t entries[4];      // indices into the grid
    uint8_t signs_scale[4];  // u32: sign index of entry k in bits 7k .., scale
                             // in bits 28 ..
  };
  uint16_t d;  // f16
  Part parts[8];
};
static_assert(sizeof(Iq2xxsBlock) == 66);

// Of part j of a block.
constexpr uint8_t Q4KScale(const uint8_t* scales, size_t j) {
  if (j < 4) return scales[j] & 63;
  return static_cast<uint8_t>((scales[j + 4] & 15) | scales[j - 4] >> 6 << 4);
}
constexpr uint8_t Q4KMin(const uint8_t* scales, size_t j) {
  if (j < 4) return scales[j + 4] & 63;
  return static_cast<uint8_t>(scales[j + 4] >> 4 | scales[j] >> 6 << 4);
}

// `cols` values, whole blocks, at any alignment. The products are exact in
// fp32, so that a value is rounded once, by the subtraction.
void DequantizeQ4K(const uint8_t* in, size_t cols, float* out);
void DequantizeQ2K(const uint8_t* in, size_t cols, float* out);
void DequantizeIq2xxs(const uint8_t* in, size_t cols, float* out);

}  // namespace ecphory
