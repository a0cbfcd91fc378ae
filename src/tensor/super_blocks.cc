#include "tensor/super_blocks.h"

#include <cstring>

#include "tensor/float_codec.h"
#include "tensor/iq2_xxs.h"

namespace ecphory {

namespace {

// visit(block, out) for each block of a row, copied out of the unaligned bytes.
template <class Block, typename Visit>
void ForEachBlock(const uint8_t* in, size_t cols, float* out,
                  const Visit& visit) {
  for (size_t c = 0; c < cols; c += kSuperBlock, in += sizeof(Block)) {
    Block block;
    std::memcpy(&block, in, sizeof(block));
    visit(block, out + c);
  }
}

}  // namespace

void DequantizeQ4K(const uint8_t* in, size_t cols, float* out) {
  ForEachBlock<Q4KBlock>(in, cols, out, [](const Q4KBlock& block, float* y) {
    for (size_t i = 0; i < kSuperBlock; ++i) {
      const size_t part = i / 32;
      const uint8_t byte = block.codes[part / 2 * 32 + i % 32];
      const int q = part % 2 == 0 ? byte & 15 : byte >> 4;
      const float scale = F16ToF32(block.d) * Q4KScale(block.scales, part);
      const float min = F16ToF32(block.dmin) * Q4KMin(block.scales, part);
      y[i] = scale * static_cast<float>(q) - min;
    }
  });
}

void DequantizeQ2K(const uint8_t* in, size_t cols, float* out) {
  ForEachBlock<Q2KBlock>(in, cols, out, [](const Q2KBlock& block, float* y) {
    for (size_t i = 0; i < kSuperBlock; ++i) {
      const uint8_t byte = block.codes[i / 128 * 32 + i % 32];
      const int q = byte >> (i % 128 / 32 * 2) & 3;
      const uint8_t packed = block.scales[i / 16];
      const float scale = F16ToF32(block.d) * static_cast<float>(packed & 15);
      const float min = F16ToF32(block.dmin) * static_cast<float>(packed >> 4);
      y[i] = scale * static_cast<float>(q) - min;
    }
  });
}

void DequantizeIq2xxs(const uint8_t* in, size_t cols, float* out) {
  ForEachBlock<Iq2xxsBlock>(
      in, cols, out, [](const Iq2xxsBlock& block, float* y) {
        for (size_t i = 0; i < kSuperBlock; ++i) {
          const Iq2xxsBlock::Part& part = block.parts[i / 32];
          uint32_t word;
          std::memcpy(&word, part.signs_scale, sizeof(word));
          const size_t k = i % 32 / 8;
          const uint8_t signs = Iq2xxsSigns(word >> (7 * k) & 127);
          const float magnitude = kIq2xxsGrid[part.entries[k]][i % 8];
          const float scale = F16ToF32(block.d) *
                              (0.5f + static_cast<float>(word >> 28)) * 0.25f;
          y[i] = (signs >> i % 8 & 1) != 0 ? -(scale * magnitude)
                                           : scale * magnitude;
        }
      });
}

}  // namespace ecphory
