#include "tensor/int8_block.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ecphory {

float RoundToInt8(const float* x, int8_t* codes) {
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < kInt8Block; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  std::fill(codes, codes + kInt8Block, int8_t{0});
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  if (largest < kInt8MinMagnitude) return 0;
  const float inverse = 127 / largest;
  for (size_t i = 0; i < kInt8Block; ++i) {
    codes[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
  return largest / 127;
}

}  // namespace ecphory
