#include "engram/prime.h"

#include <array>
#include <bit>

namespace ecphory::engram {

namespace {

// No composite below 3.3e24 is a strong pseudoprime to all of these.
constexpr std::array<uint64_t, 12> kBases = {2,  3,  5,  7,  11, 13,
                                             17, 19, 23, 29, 31, 37};

uint64_t MulMod(uint64_t a, uint64_t b, uint64_t n) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % n);
}

uint64_t PowMod(uint64_t base, uint64_t exponent, uint64_t n) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = MulMod(result, base, n);
    base = MulMod(base, base, n);
  }
  return result;
}

// Whether n (odd, n - 1 = odd_part << twos) passes for `base` (n not dividing
// it).
bool IsStrongProbablePrime(uint64_t n, uint64_t base, uint64_t odd_part,
                           int twos) {
  uint64_t x = PowMod(base, odd_part, n);
  if (x == 1 || x == n - 1) return true;
  for (int i = 1; i < twos; ++i) {
    x = MulMod(x, x, n);
    if (x == n - 1) return true;
  }
  return false;
}

}  // namespace

bool IsPrime(uint64_t n) {
  if (n < 2) return false;
  for (uint64_t base : kBases) {
    if (n % base == 0) return n == base;
  }
  const int twos = std::countr_zero(n - 1);
  const uint64_t odd_part = (n - 1) >> twos;
  for (uint64_t base : kBases) {
    if (!IsStrongProbablePrime(n, base, odd_part, twos)) return false;
  }
  return true;
}

}  // namespace ecphory::engram
