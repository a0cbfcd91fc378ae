#include "tensor/float_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/testing.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Same bits, or both NaN (whose payload no format defines).
void ExpectSameFloat(float expected, float actual, size_t index) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << "at " << index;
  } else {
    EXPECT_EQ(F32Bits(expected), F32Bits(actual)) << "at " << index;
  }
}

TEST(FloatCodec, DecodesEveryE4M3CodeAsGolden) {
  const auto golden = ReadGoldenArray<float>("e4m3_decode.npy");
  ASSERT_EQ(golden.size(), 256u);
  for (size_t i = 0; i < 256; ++i) {
    ExpectSameFloat(golden[i], E4M3ToF32(static_cast<uint8_t>(i)), i);
  }
}

TEST(FloatCodec, DecodesEveryE8M0CodeAsGolden) {
  const auto golden = ReadGoldenArray<float>("e8m0_decode.npy");
  ASSERT_EQ(golden.size(), 256u);
  for (size_t i = 0; i < 256; ++i) {
    ExpectSameFloat(golden[i], E8M0ToF32(static_cast<uint8_t>(i)), i);
  }
}

TEST(FloatCodec, DecodesEveryE2M1CodeAsGolden) {
  const auto golden = ReadGoldenArray<float>("e2m1_decode.npy");
  ASSERT_EQ(golden.size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    ExpectSameFloat(golden[i], E2M1ToF32(static_cast<uint8_t>(i)), i);
  }
}

TEST(FloatCodec, EncodesE4M3AsGolden) {
  const auto in = ReadGoldenArray<float>("e4m3_encode_in.npy");
  const auto code = ReadGoldenArray<uint8_t>("e4m3_encode_code.npy");
  ASSERT_FALSE(in.empty());
  ASSERT_EQ(in.size(), code.size());
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(code[i], F32ToE4M3(in[i])) << in[i];
  }
}

TEST(FloatCodec, E4M3OverflowIsNaN) {
  EXPECT_EQ(0x7e, F32ToE4M3(464.0f));
  EXPECT_EQ(0xfe, F32ToE4M3(-464.0f));
  EXPECT_EQ(0x7f, F32ToE4M3(std::nextafter(464.0f, kInf)));
  EXPECT_EQ(0x7f, F32ToE4M3(kInf));
  EXPECT_EQ(0xff, F32ToE4M3(-kInf));
  EXPECT_EQ(0x7f, F32ToE4M3(kNaN) & 0x7f);
}

TEST(FloatCodec, E2M1TiesGoToTheEvenCode) {
  const struct {
    float x;
    float expected;
  } kCases[] = {{0.25f, 0},   {0.75f, 1},    {1.25f, 1},    {1.75f, 2},
                {2.5f, 2},    {3.5f, 4},     {5.0f, 4},     {0.26f, .5f},
                {0.74f, .5f}, {1.26f, 1.5f}, {1.74f, 1.5f}, {2.51f, 3},
                {3.49f, 3},   {4.99f, 4},    {5.01f, 6},    {6.0f, 6},
                {6.01f, 6},   {1e30f, 6},    {kInf, 6}};
  for (const auto& c : kCases) {
    EXPECT_EQ(c.expected, E2M1ToF32(F32ToE2M1(c.x))) << c.x;
    EXPECT_EQ(-c.expected, E2M1ToF32(F32ToE2M1(-c.x))) << -c.x;
  }
  EXPECT_EQ(8, F32ToE2M1(-0.0f));
}

TEST(FloatCodec, E2M1CodesRoundTrip) {
  for (uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(code, F32ToE2M1(E2M1ToF32(code)));
  }
}

TEST(FloatCodec, CeilPow2ComesFromTheBits) {
  EXPECT_EQ(127, CeilPow2Code(1.0f));
  EXPECT_EQ(128, CeilPow2Code(std::nextafter(1.0f, 2.0f)));
  EXPECT_EQ(127, CeilPow2Code(std::nextafter(1.0f, 0.0f)));
  EXPECT_EQ(129, CeilPow2Code(3.0f));
  EXPECT_EQ(1, CeilPow2Code(0x1p-126f));
  EXPECT_EQ(254, CeilPow2Code(0x1p127f));
}

// The value of a binary16 code by its definition.
double F16Value(uint16_t code) {
  const int exponent = (code >> 10) & 31;
  const int mantissa = code & 1023;
  const double sign = (code & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(FloatCodec, F16DecodesAndReencodesEveryCode) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t code = static_cast<uint16_t>(i);
    const float value = F16ToF32(code);
    if ((code & 0x7c00) == 0x7c00) {
      const bool is_nan = (code & 0x3ff) != 0;
      ASSERT_EQ(is_nan, std::isnan(value)) << code;
      ASSERT_EQ(is_nan, (F32ToF16(value) & 0x7fff) > 0x7c00) << code;
      if (!is_nan) {
        ASSERT_EQ(code, F32ToF16(value));
      }
      continue;
    }
    ASSERT_EQ(F16Value(code), value) << code;
    ASSERT_EQ(code, F32ToF16(value)) << code;
  }
}

TEST(FloatCodec, F16RoundsHalfwayToEvenBetweenAllNeighbours) {
  for (uint16_t code = 0; code < 0x7bff; ++code) {
    const float low = F16ToF32(code);
    const float high = F16ToF32(static_cast<uint16_t>(code + 1));
    const float middle = (low + high) / 2;  // exact in fp32
    const uint16_t even = static_cast<uint16_t>((code + 1) & ~1);
    ASSERT_EQ(even, F32ToF16(middle)) << code;
    ASSERT_EQ(code, F32ToF16(std::nextafter(middle, low))) << code;
    ASSERT_EQ(code + 1, F32ToF16(std::nextafter(middle, high))) << code;
  }
}

TEST(FloatCodec, F16OverflowsToInfinity) {
  EXPECT_EQ(0x7bff, F32ToF16(std::nextafter(65520.0f, 0.0f)));
  EXPECT_EQ(0x7c00, F32ToF16(65520.0f));
  EXPECT_EQ(0xfc00, F32ToF16(-kInf));
  EXPECT_EQ(0x0000, F32ToF16(0x1p-149f));
}

TEST(FloatCodec, BF16RoundsToNearestEven) {
  EXPECT_EQ(1.0f, RoundToBF16(1.0f + 0x1p-8f));  // tie, even below
  EXPECT_EQ(1.0f + 0x1p-6f,
            RoundToBF16(1.0f + 3 * 0x1p-8f));  // tie, even above
  EXPECT_EQ(1.0f + 0x1p-7f, RoundToBF16(1.0f + 0x1p-8f + 0x1p-20f));
  EXPECT_EQ(-kInf, RoundToBF16(-std::numeric_limits<float>::max()));
  EXPECT_TRUE(std::isnan(RoundToBF16(F32FromBits(0x7f800001u))));
}

}  // namespace
}  // namespace ecphory
