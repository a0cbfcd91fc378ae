#include "engram/prime.h"

#include <gtest/gtest.h>

#include <vector>

namespace ecphory::engram {
namespace {

TEST(Prime, AgreesWithASieve) {
  constexpr size_t kLimit = 100'000;
  std::vector<bool> composite(kLimit, false);
  for (size_t n = 2; n < kLimit; ++n) {
    EXPECT_EQ(IsPrime(n), !composite[n]) << n;
    for (size_t m = n * n; m < kLimit; m += n) composite[m] = true;
  }
  EXPECT_FALSE(IsPrime(0));
  EXPECT_FALSE(IsPrime(1));
}

TEST(Prime, StrongPseudoprimesAreComposite) {
  // The smallest numbers that fool the first 1, 2, 3, ... prime bases.
  for (uint64_t n : {2047u, 1373653u, 25326001u, 3215031751u}) {
    EXPECT_FALSE(IsPrime(n)) << n;
  }
  for (uint64_t n : {2152302898747u, 3474749660383u, 341550071728321u,
                     3825123056546413051u}) {
    EXPECT_FALSE(IsPrime(n)) << n;
  }
}

TEST(Prime, EndOfTheRange) {
  EXPECT_TRUE(IsPrime(18446744073709551557u));  // the largest below 2^64
  EXPECT_FALSE(IsPrime(18446744073709551615u));
  EXPECT_FALSE(IsPrime(18446744065119617025u));  // 4294967295^2
  EXPECT_FALSE(IsPrime(18446743979220271189u));  // 4294967279 * 4294967291
}

}  // namespace
}  // namespace ecphory::engram
