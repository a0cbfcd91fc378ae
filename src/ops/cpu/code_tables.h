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
  std::array<float, 256> e8m0_of_e4m3;

  CodeTables() {
    for (size_t code = 0; code < 256; ++code) {
      e8m0[code] = E8M0ToF32(static_cast<uint8_t>(code));
      e8m0_of_e4m3[code] = 256 * e8m0[code];
      e4m3[code] = E4M3ToF32(static_cast<uint8_t>(code));
    }
  }
};

inline const CodeTables& GetCodeTables() {
  static const CodeTables tables;
  return tables;
}

}  // namespace ecphory
