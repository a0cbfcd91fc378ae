// Unsigned arithmetic that reports overflow, for sizes that come from files.
#pragma once

#include <cstdint>

namespace ecphory {

// *out = a + b; false when the sum does not fit in 64 bits.
[[nodiscard]] inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

// *out = a * b; false when the product does not fit in 64 bits.
[[nodiscard]] inline bool CheckedMul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

// *out = a rounded up to a multiple of `alignment` (> 0); false on overflow.
[[nodiscard]] inline bool CheckedAlignUp(uint64_t a, uint64_t alignment,
                                         uint64_t* out) {
  const uint64_t rest = a % alignment;
  return CheckedAdd(a, rest == 0 ? 0 : alignment - rest, out);
}

}  // namespace ecphory
