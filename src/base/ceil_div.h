// Rounding a quotient up.
#pragma once

#include <cstdint>

namespace ecphory {

// ceil(a / b) for b > 0; the sum must not overflow.
inline constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

}  // namespace ecphory
