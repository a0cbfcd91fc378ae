#include "tensor/row_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tensor/testing.h"

namespace ecphory {
namespace {

std::vector<float> RoundTrip(RowFormat format, const std::vector<float>& x) {
  std::vector<uint8_t> row(RowBytes(format, x.size()));
  std::vector<float> y(x.size());
  EncodeRow(format, x.data(), x.size(), row.data());
  DecodeRow(format, row.data(), x.size(), y.data());
  return y;
}

struct GoldenCase {
  RowFormat format;
  const char* name;
};

class RowCodecGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(RowCodecGolden, FakeQuantIsExact) {
  const std::string stem = GetParam().name;
  const auto in = ReadGoldenArray<float>(stem + "_in.npy");
  const auto out = ReadGoldenArray<float>(stem + "_out.npy");
  ASSERT_FALSE(in.empty());
  ASSERT_EQ(in.size(), out.size());
  const std::vector<float> actual = RoundTrip(GetParam().format, in);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out[i], actual[i]) << "at " << i << ", x = " << in[i];
  }
  EXPECT_EQ(actual, RoundTrip(GetParam().format, actual)) << "not idempotent";
}

INSTANTIATE_TEST_SUITE_P(
    Formats, RowCodecGolden,
    testing::Values(GoldenCase{RowFormat::kFp8Block32, "fq_fp8_e8m0_b32"},
                    GoldenCase{RowFormat::kFp4Block32, "fq_fp4_e8m0_b32"},
                    GoldenCase{RowFormat::kFp4Block16, "fq_fp4_e4m3_b16"}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(RowCodec, ReleasedRowSizes) {
  EXPECT_EQ(528u, RowBytes(RowFormat::kFp8Block32, 512));
  EXPECT_EQ(288u, RowBytes(RowFormat::kFp4Block16, 512));
  EXPECT_EQ(68u, RowBytes(RowFormat::kFp4Block32, 128));
  EXPECT_EQ(2048u, RowBytes(RowFormat::kF32, 512));
}

TEST(RowCodec, EvenValuesLieInLowNibbles) {
  std::vector<float> x(32, 0.0f);
  x[0] = 6;   // code 7; amax 6 gives scale 1
  x[1] = -1;  // code 10
  std::vector<uint8_t> row(RowBytes(RowFormat::kFp4Block32, 32));
  EncodeRow(RowFormat::kFp4Block32, x.data(), 32, row.data());
  EXPECT_EQ(0xa7, row[0]);
  EXPECT_EQ(127, row[16]);
}

TEST(RowCodec, F32RowsKeepTheirBits) {
  const std::vector<float> x = {0.1f, -0.0f, 1e-40f, 3e38f};
  EXPECT_EQ(x, RoundTrip(RowFormat::kF32, x));
}

TEST(RowCodec, E4M3ScaleSaturates) {
  std::vector<float> x(16, 1e6f);
  x[1] = -1e6f;
  const std::vector<float> y = RoundTrip(RowFormat::kFp4Block16, x);
  EXPECT_EQ(448.0f * 6, y[0]);
  EXPECT_EQ(-448.0f * 6, y[1]);
}

TEST(RowCodec, NonFiniteInputStaysVisible) {
  for (const RowFormat format : {RowFormat::kFp8Block32, RowFormat::kFp4Block16,
                                 RowFormat::kFp4Block32}) {
    for (const float bad : {std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> x(64, 1.0f);
      x[3] = bad;
      const std::vector<float> y = RoundTrip(format, x);
      EXPECT_TRUE(std::isnan(y[3])) << RowFormatName(format);
      EXPECT_FALSE(std::isnan(y[63])) << RowFormatName(format);
    }
  }
}

}  // namespace
}  // namespace ecphory
