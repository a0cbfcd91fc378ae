#include "tensor/mxfp4_rows.h"

namespace ecphory {

// Byte i of a block's codes holds values i and i + 16, low nibble first; byte j
// of a row's holds 2j and 2j + 1.
void SplitMxfp4(const uint8_t* blocks, size_t count, uint8_t* codes,
                uint8_t* scales) {
  constexpr size_t kHalf = kMxfp4CodeBytes / 2;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const from = blocks + i * kMxfp4BlockBytes + 1;
    uint8_t* const to = codes + i * kMxfp4CodeBytes;
    scales[i] = from[-1];
    for (size_t j = 0; j < kHalf; ++j) {
      const unsigned even = from[2 * j], odd = from[2 * j + 1];
      to[j] = static_cast<uint8_t>((even & 15) | (odd & 15) << 4);
      to[kHalf + j] = static_cast<uint8_t>(even >> 4 | (odd & 0xf0));
    }
  }
}

}  // namespace ecphory
