#include "tensor/int8_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace ecphory {
namespace {

struct Rounded {
  explicit Rounded(const std::vector<float>& x) : codes(kInt8Block) {
    scale = RoundToInt8(x.data(), codes.data());
  }
  std::vector<int8_t> codes;
  float scale;
};

TEST(Int8Block, TheLargestMagnitudeIs127) {
  std::vector<float> x(kInt8Block, 0.0f);
  x[3] = -2;
  x[4] = 1;
  x[5] = 2.0f * 2.5f / 127;  // a tie goes to the even code
  x[6] = 2.0f * 3.5f / 127;
  const Rounded r(x);
  EXPECT_EQ(2.0f / 127, r.scale);
  EXPECT_EQ(-127, r.codes[3]);
  EXPECT_EQ(64, r.codes[4]);  // 63.5
  EXPECT_EQ(2, r.codes[5]);
  EXPECT_EQ(4, r.codes[6]);
  EXPECT_EQ(0, r.codes[0]);
}

TEST(Int8Block, ErrorsAreHalfAScale) {
  std::mt19937 bits(3);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 100; ++round) {
    std::vector<float> x(kInt8Block);
    for (float& value : x) value = std::ldexp(normal(bits), round - 50);
    const Rounded r(x);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(std::fabs(x[i] - r.codes[i] * static_cast<double>(r.scale)),
                0.50001 * r.scale);
      EXPECT_GE(r.codes[i], -127);
    }
  }
}

TEST(Int8Block, VanishingBlocksAreZero) {
  for (const float x : {0.0f, 0x1p-149f, 0x1p-121f}) {
    const Rounded r(std::vector<float>(kInt8Block, x));
    EXPECT_EQ(0.0f, r.scale) << x;
    EXPECT_EQ(0, r.codes[7]) << x;
  }
  const Rounded smallest(std::vector<float>(kInt8Block, kInt8MinMagnitude));
  EXPECT_EQ(127, smallest.codes[31]);
  EXPECT_GT(smallest.scale, 0.0f);
}

TEST(Int8Block, LargestFloatsStayFinite) {
  const float max = std::numeric_limits<float>::max();
  const Rounded r(std::vector<float>(kInt8Block, max));
  EXPECT_EQ(127, r.codes[0]);
  EXPECT_NEAR(1, r.codes[0] * static_cast<double>(r.scale) / max, 1e-6);
}

TEST(Int8Block, WhatIsNotFiniteMakesTheScaleNaN) {
  for (const float x : {std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(kInt8Block, 1.0f);
    values[17] = x;
    const Rounded r(values);
    EXPECT_TRUE(std::isnan(r.scale)) << x;
    EXPECT_EQ(0, r.codes[0]) << x;
  }
}

}  // namespace
}  // namespace ecphory
