// Exact rounding in double, the yardstick of the codecs' tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace ecphory {

// Nearest bf16, ties to even, infinite from half a step above the largest on.
inline double RoundToBF16Exactly(double x) {
  if (x == 0) return x;
  int exponent;
  std::frexp(x, &exponent);
  const int step = std::max(exponent - 8, -133);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -step)), step);
  return std::fabs(rounded) >= 0x1p128
             ? std::copysign(std::numeric_limits<double>::infinity(), x)
             : rounded;
}

}  // namespace ecphory
