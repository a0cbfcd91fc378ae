#include "engram/modulus.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engram/prime.h"

namespace ecphory::engram {
namespace {

constexpr uint64_t kLimit = uint64_t{1} << 63;  // of x, exclusive

// Around the multiples of p next to x, and x itself.
void CheckNear(const Modulus& mod, uint64_t x) {
  const uint64_t p = mod.value();
  const uint64_t multiple = x / p * p;
  for (uint64_t y : {x, multiple, multiple + 1, multiple + p - 1, multiple + p,
                     multiple + p + 1, multiple - 1}) {
    if (y >= kLimit) continue;
    ASSERT_EQ(mod(y), y % p) << y << " mod " << p;
  }
}

void CheckDivisor(uint64_t p, std::mt19937_64* rng) {
  const Modulus mod(p);
  for (uint64_t x : {uint64_t{0}, uint64_t{1}, p, 2 * p, kLimit - 1, kLimit - 2,
                     kLimit / 2, kLimit / 2 - 1}) {
    CheckNear(mod, x);
  }
  for (int bit = 0; bit < 63; ++bit) CheckNear(mod, uint64_t{1} << bit);
  for (int i = 0; i < 200; ++i) {
    CheckNear(mod, (*rng)() >> (1 + i % 40));
  }
}

TEST(Modulus, SmallDivisorsAndPowersOfTwo) {
  std::mt19937_64 rng(1);
  for (uint64_t p = 2; p < 600; ++p) CheckDivisor(p, &rng);
  for (int bit = 1; bit <= 62; ++bit) {
    CheckDivisor(uint64_t{1} << bit, &rng);
    if (bit > 1) CheckDivisor((uint64_t{1} << bit) - 1, &rng);
    if (bit < 62) CheckDivisor((uint64_t{1} << bit) + 1, &rng);
  }
}

TEST(Modulus, PrimesOfEverySizeUpTo2To40) {
  std::mt19937_64 rng(2);
  for (int bit = 2; bit <= 40; ++bit) {
    for (int i = 0; i < 20; ++i) {
      uint64_t p =
          (uint64_t{1} << (bit - 1)) + rng() % (uint64_t{1} << (bit - 1));
      while (!IsPrime(p)) ++p;
      CheckDivisor(p, &rng);
    }
  }
}

// The worst case of the proof is the largest x of the largest residue: walk
// the last multiples below 2^63 of the released primes.
TEST(Modulus, ReleasedPrimesAtTheEndOfTheRange) {
  std::vector<uint64_t> primes;
  for (uint64_t p = 16'000'000; primes.size() < 48; ++p) {
    if (IsPrime(p)) primes.push_back(p);
  }
  for (uint64_t p = 20'000'000; primes.size() < 64; ++p) {
    if (IsPrime(p)) primes.push_back(p);
  }
  for (uint64_t p : primes) {
    const Modulus mod(p);
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t multiple = (kLimit - 1) / p * p - i * p;
      ASSERT_EQ(mod(multiple), 0u);
      ASSERT_EQ(mod(multiple - 1), p - 1);
      ASSERT_EQ(mod(multiple - p + 1), 1u);
    }
  }
}

}  // namespace
}  // namespace ecphory::engram
