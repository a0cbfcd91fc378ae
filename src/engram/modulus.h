// Remainders by a fixed divisor without a division.
#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace ecphory::engram {

// x mod `value` for x < 2^63, exact: with 2^(l-1) < value <= 2^l and
// M = ceil(2^(63+l) / value), M * value exceeds 2^(63+l) by less than 2^l, and
// that is little enough for floor(x * M / 2^(63+l)) to be floor(x / value)
// (Granlund and Montgomery, 1994). M fits in 64 bits.
class Modulus {
 public:
  // 2 <= value <= 2^62.
  explicit Modulus(uint64_t value)
      : value_(value),
        shift_(static_cast<uint32_t>(std::bit_width(value - 1)) - 1) {
    ECPHORY_CHECK(value >= 2 && value <= uint64_t{1} << 62);
    const unsigned __int128 power = static_cast<unsigned __int128>(1)
                                    << (64 + shift_);
    reciprocal_ = static_cast<uint64_t>((power + (value - 1)) / value);
  }

  uint64_t value() const { return value_; }
  uint64_t operator()(uint64_t x) const {
    const uint64_t high = static_cast<uint64_t>(
        static_cast<unsigned __int128>(x) * reciprocal_ >> 64);
    return x - (high >> shift_) * value_;
  }

 private:
  uint64_t value_;
  uint64_t reciprocal_;
  uint32_t shift_;
};

}  // namespace ecphory::engram
