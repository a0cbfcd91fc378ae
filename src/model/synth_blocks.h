// Random blocks of the quantised types: valid, of mean 0, and of a known mean
// square once dequantised.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/counter_random.h"
#include "tensor/dtype.h"

namespace ecphory {

// Words of random bits as eight codes each: e4m3 of magnitude 2 to 448, as
// scaled weights have them (few are small beside the largest of their tile).
uint64_t RandomE4M3(uint64_t bits);
// Mean squares of those, and of e2m1 codes.
double MeanSquareE4M3();
double MeanSquareE2M1();

// e8m0 scales: two neighbouring powers of two, mixed so that `rms` is their
// root mean square to within 1/512.
class PowerScales {
 public:
  explicit PowerScales(double rms);
  // From eight random bits.
  uint8_t Pick(uint8_t bits) const {
    return static_cast<uint8_t>(power_ + (bits < larger_of_256_ ? 1 : 0));
  }

 private:
  uint8_t power_ = 0;
  uint32_t larger_of_256_ = 0;
};

// Blocks of Q8_0, Q4_K, Q2_K, IQ2_XXS or MXFP4 with values of `deviation`.
class SynthBlocks {
 public:
  SynthBlocks(DType dtype, double deviation);
  static bool Makes(DType dtype);

  // One block, GetDTypeInfo(dtype).block_bytes long.
  void Make(RandomWords* words, uint8_t* out) const;

 private:
  void MakeQ4K(size_t scale, RandomWords* words, uint8_t* out) const;
  void MakeQ2K(size_t scale, RandomWords* words, uint8_t* out) const;

  DType dtype_;
  PowerScales power_scales_;
  // f16 scales, and the f16 offsets that make a block's mean 0.
  std::array<uint16_t, 64> scales_{};
  std::array<uint16_t, 64> offsets_{};
};

}  // namespace ecphory
