// NumPy's default random generator, number for number.
#pragma once

#include <cstdint>

namespace ecphory::engram {

// numpy.random.default_rng(seed): PCG64 (XSL-RR 128/64) seeded through
// SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);

  // The next raw 64-bit output.
  uint64_t Next64();
  // The next value of integers(0, bound, dtype=int64), 1 <= bound <= 2^63.
  uint64_t Integer(uint64_t bound);

 private:
  uint32_t Next32();
  uint64_t Bounded32(uint64_t bound);
  uint64_t Bounded64(uint64_t bound);
  void Step();

  unsigned __int128 state_ = 0;
  unsigned __int128 increment_ = 0;  // odd
  // Next32() hands out the two halves of one output, the low one first.
  bool has_high_half_ = false;
  uint32_t high_half_ = 0;
};

}  // namespace ecphory::engram
