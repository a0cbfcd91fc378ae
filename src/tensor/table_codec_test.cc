#include "tensor/table_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/float_codec.h"
#include "tensor/table_codec_testing.h"

namespace ecphory {
namespace {

// The value of an e4m3 code and of an e8m0 code from their definitions.
double E4M3Value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -9)
                               : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}
double E8M0Value(int code) { return std::ldexp(1.0, code - 127); }

bool IsNaNCode(int code) { return (code & 0x7f) == 0x7f; }

// One row of `width` equal codes and scales in the row264 layout.
std::vector<uint8_t> UniformRow(size_t width, uint8_t code, uint8_t scale) {
  std::vector<uint8_t> row(width, code);
  row.resize(TableRowBytes(TableCodec::kRow264, width), scale);
  return row;
}

TEST(RowCodec, EveryCodeWithEveryScale) {
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 256; ++code) {
      const auto row = UniformRow(32, static_cast<uint8_t>(code),
                                  static_cast<uint8_t>(scale));
      float out[32];
      const bool ok =
          DecodeTableRow(TableCodec::kRow264, row.data(), nullptr, 32, out);
      const double exact =
          RoundToBF16Exactly(E4M3Value(code) * E8M0Value(scale));
      const bool expect_ok =
          !IsNaNCode(code) && scale != 255 && std::isfinite(exact);
      ASSERT_EQ(ok, expect_ok) << "code " << code << ", scale " << scale;
      if (!ok) continue;
      ASSERT_EQ(F32Bits(out[31]), F32Bits(static_cast<float>(exact)))
          << "code " << code << ", scale " << scale;
    }
  }
}

TEST(RowCodec, OneBrokenByteAnywhereIsFound) {
  constexpr size_t kWidth = 96;
  float out[kWidth];
  for (size_t i = 0; i < kWidth + kWidth / 32; ++i) {
    auto row = UniformRow(kWidth, 0x38, 127);
    ASSERT_TRUE(
        DecodeTableRow(TableCodec::kRow264, row.data(), nullptr, kWidth, out));
    for (int bad : {0x7f, 0xff}) {
      if (i >= kWidth && bad == 0x7f) continue;  // a scale of 1
      row[i] = static_cast<uint8_t>(bad);
      EXPECT_FALSE(
          DecodeTableRow(TableCodec::kRow264, row.data(), nullptr, kWidth, out))
          << "byte " << i;
    }
  }
}

TEST(RowCodec, ScaleZeroAndNegativeZeroAreValues) {
  float out[32];
  auto row = UniformRow(32, 0x80, 0);
  ASSERT_TRUE(
      DecodeTableRow(TableCodec::kRow264, row.data(), nullptr, 32, out));
  EXPECT_EQ(F32Bits(out[0]), 0x80000000u);
  row = UniformRow(32, 0x7e, 0);  // 448 * 2^-127
  ASSERT_TRUE(
      DecodeTableRow(TableCodec::kRow264, row.data(), nullptr, 32, out));
  EXPECT_EQ(out[0], std::ldexp(448.0f, -127));
}

// Random codes that are no NaN, and scales in the middle of the range.
std::vector<uint8_t> RandomRow(size_t width, std::mt19937* rng) {
  std::vector<uint8_t> row(TableRowBytes(TableCodec::kRow264, width));
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<uint8_t>((*rng)() & 0xbf);
    if (i >= width) row[i] = static_cast<uint8_t>(100 + (*rng)() % 50);
  }
  return row;
}

TEST(RowCodec, EveryWidthAndBothLayoutsOfTheScales) {
  std::mt19937 rng(1);
  for (size_t width = 32; width <= 512; width += 32) {
    const auto row = RandomRow(width, &rng);
    std::vector<float> joined(width), paired(width);
    ASSERT_TRUE(DecodeTableRow(TableCodec::kRow264, row.data(), nullptr, width,
                               joined.data()));
    ASSERT_TRUE(DecodeTableRow(TableCodec::kReleasedPair, row.data(),
                               row.data() + width, width, paired.data()));
    EXPECT_EQ(joined, paired);
    for (size_t i = 0; i < width; ++i) {
      EXPECT_EQ(joined[i], E4M3Value(row[i]) * E8M0Value(row[width + i / 32]));
    }
  }
}

TEST(RowCodec, BF16RowsAreLittleEndian) {
  std::vector<uint8_t> row(64, 0);
  row[2] = 0x80;  // 0x3f80 = 1
  row[3] = 0x3f;
  row[62] = 0x40;  // 0xc040 = -3
  row[63] = 0xc0;
  float out[32];
  ASSERT_TRUE(DecodeTableRow(TableCodec::kBf16, row.data(), nullptr, 32, out));
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 1);
  EXPECT_EQ(out[31], -3);
  for (uint16_t bad : {0x7f80, 0xff80, 0x7fc0}) {  // infinities and a NaN
    row[0] = static_cast<uint8_t>(bad);
    row[1] = static_cast<uint8_t>(bad >> 8);
    EXPECT_FALSE(
        DecodeTableRow(TableCodec::kBf16, row.data(), nullptr, 32, out));
  }
}

TEST(RowCodec, BytesOfARow) {
  EXPECT_EQ(TableRowBytes(TableCodec::kQ8_0, 160), 170u);
  EXPECT_EQ(TableRowBytes(TableCodec::kQ4_0, 160), 90u);
  EXPECT_EQ(TableRowBytes(TableCodec::kQ4_1, 160), 100u);
  EXPECT_EQ(TableRowBytes(TableCodec::kRow264, 256), 264u);
  EXPECT_EQ(TableRowBytes(TableCodec::kReleasedPair, 256), 256u);
  EXPECT_EQ(TableScaleBytes(TableCodec::kReleasedPair, 256), 8u);
  EXPECT_EQ(TableScaleBytes(TableCodec::kRow264, 256), 0u);
  EXPECT_EQ(TableRowBytes(TableCodec::kBf16, 256), 512u);
}

// Encodes 32 equal values and gives the scale and the first code.
std::pair<int, int> EncodeUniform(float x) {
  const std::vector<float> values(32, x);
  uint8_t codes[32], scale;
  EncodeE4M3Row(values.data(), 32, codes, &scale);
  return {scale, codes[0]};
}

TEST(RowCodec, EncodeTakesTheSmallestScale) {
  EXPECT_EQ(EncodeUniform(448), (std::pair{127, 0x7e}));
  EXPECT_EQ(EncodeUniform(std::nextafter(448.0f, 500.0f)).first, 128);
  EXPECT_EQ(EncodeUniform(-448), (std::pair{127, 0xfe}));
  EXPECT_EQ(EncodeUniform(256), (std::pair{127, 0x78}));
  EXPECT_EQ(EncodeUniform(224), (std::pair{126, 0x7e}));
  EXPECT_EQ(EncodeUniform(0), (std::pair{0, 0}));
  EXPECT_EQ(EncodeUniform(0x1p-149f), (std::pair{0, 0}));
  EXPECT_EQ(EncodeUniform(0x1p-136f), (std::pair{0, 1}));
  EXPECT_EQ(EncodeUniform(std::numeric_limits<float>::max()).first, 127 + 120);
}

TEST(RowCodec, EncodedRowsDecodeToTheNearestValues) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> x(64), decoded(64);
    for (float& v : x) v = std::ldexp(normal(rng), trial - 100);
    std::vector<uint8_t> codes(64), scales(2);
    EncodeE4M3Row(x.data(), 64, codes.data(), scales.data());
    ASSERT_TRUE(DecodeTableRow(TableCodec::kReleasedPair, codes.data(),
                               scales.data(), 64, decoded.data()));
    for (size_t i = 0; i < x.size(); ++i) {
      // Half a step: 2^-4 of the value, or half of the subnormal step 2^-9 s.
      const double bound = std::max(std::fabs(double{x[i]}) / 16,
                                    E8M0Value(scales[i / 32]) * 0x1p-10);
      EXPECT_LE(std::fabs(double{x[i]} - decoded[i]), bound);
    }
  }
}

TEST(RowCodec, EncodingWhatIsNotFiniteGivesABrokenRow) {
  for (float bad : {std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(32, 1.0f), out(32);
    x[13] = bad;
    std::vector<uint8_t> codes(32), scales(1);
    EncodeE4M3Row(x.data(), 32, codes.data(), scales.data());
    EXPECT_FALSE(DecodeTableRow(TableCodec::kReleasedPair, codes.data(),
                                scales.data(), 32, out.data()));
  }
}

}  // namespace
}  // namespace ecphory
