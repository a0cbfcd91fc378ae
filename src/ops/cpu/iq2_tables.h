// The grid and the signs of IQ2_XXS as floats, so that a kernel takes 8 values
// with one load each: 8 KB and 4 KB, which stay in L1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/iq2_xxs.h"

namespace ecphory {

inline constexpr auto kIq2xxsFloatGrid = [] {
  std::array<std::array<float, 8>, 256> grid{};
  for (size_t entry = 0; entry < 256; ++entry) {
    for (size_t i = 0; i < 8; ++i) grid[entry][i] = kIq2xxsGrid[entry][i];
  }
  return grid;
}();

// By sign index: -0 where the value is negative, else 0.
inline constexpr auto kIq2xxsSignBits = [] {
  std::array<std::array<float, 8>, 128> signs{};
  for (uint32_t index = 0; index < 128; ++index) {
    for (size_t i = 0; i < 8; ++i) {
      signs[index][i] = (Iq2xxsSigns(index) >> i & 1) != 0 ? -0.0f : 0.0f;
    }
  }
  return signs;
}();

// What the 4-bit scale of a part stands for, but for the factor d.
inline constexpr auto kIq2xxsScales = [] {
  std::array<float, 16> scales{};
  for (size_t code = 0; code < 16; ++code) {
    scales[code] = (0.5f + static_cast<float>(code)) * 0.25f;
  }
  return scales;
}();

}  // namespace ecphory
