#include "base/checked_math.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

constexpr uint64_t kMax = UINT64_MAX;

TEST(CheckedMath, AddReportsOverflow) {
  uint64_t out = 0;
  EXPECT_TRUE(CheckedAdd(kMax - 1, 1, &out));
  EXPECT_EQ(out, kMax);
  EXPECT_FALSE(CheckedAdd(kMax, 1, &out));
}

TEST(CheckedMath, MulReportsOverflow) {
  uint64_t out = 1;
  EXPECT_TRUE(CheckedMul(kMax, 0, &out));
  EXPECT_EQ(out, 0u);
  EXPECT_TRUE(CheckedMul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1, &out));
  EXPECT_EQ(out, kMax - ((uint64_t{1} << 32) - 1));
  EXPECT_FALSE(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 32, &out));
}

TEST(CheckedMath, AlignUpRoundsAndReportsOverflow) {
  uint64_t out = 1;
  EXPECT_TRUE(CheckedAlignUp(0, 16384, &out));
  EXPECT_EQ(out, 0u);
  EXPECT_TRUE(CheckedAlignUp(1, 32, &out));
  EXPECT_EQ(out, 32u);
  EXPECT_TRUE(CheckedAlignUp(64, 32, &out));
  EXPECT_EQ(out, 64u);
  EXPECT_TRUE(CheckedAlignUp(7, 3, &out));
  EXPECT_EQ(out, 9u);
  EXPECT_FALSE(CheckedAlignUp(kMax - 3, 32, &out));
}

}  // namespace
}  // namespace ecphory
