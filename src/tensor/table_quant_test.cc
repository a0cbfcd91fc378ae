#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/table_codec.h"
#include "tensor/table_codec_testing.h"

namespace ecphory {
namespace {

// The value of an f16 code, from its definition; NaN and infinities too.
double F16Value(int code) {
  const int exponent = (code >> 10) & 31, mantissa = code & 0x3ff;
  double magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 0) magnitude = std::ldexp(mantissa, -24);
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  }
  return code & 0x8000 ? -magnitude : magnitude;
}

struct QuantKind {
  TableCodec codec;
  size_t bytes;  // of a block
};
constexpr QuantKind kQuantKinds[] = {
    {TableCodec::kQ8_0, 34}, {TableCodec::kQ4_0, 18}, {TableCodec::kQ4_1, 20}};

// Value `i` of a block straight from the layout, in double, before rounding to
// bf16. fp32 holds all but the sum of Q4_1.
float QuantValue(TableCodec codec, const uint8_t* block, size_t i) {
  const double d = F16Value(block[0] | block[1] << 8);
  if (codec == TableCodec::kQ8_0) {
    return static_cast<float>(d * static_cast<int8_t>(block[2 + i]));
  }
  const size_t head = codec == TableCodec::kQ4_0 ? 2 : 4;
  const uint8_t byte = block[head + i % 16];
  const int q = i < 16 ? byte % 16 : byte / 16;
  if (codec == TableCodec::kQ4_0) return static_cast<float>(d * (q - 8));
  return static_cast<float>(d * q + F16Value(block[2] | block[3] << 8));
}

TEST(QuantCodec, QuantisedRowsFollowTheirLayout) {
  std::mt19937 rng(3);
  for (const QuantKind& kind : kQuantKinds) {
    for (int trial = 0; trial < 2000; ++trial) {
      const size_t blocks = 1 + static_cast<size_t>(trial) % 5;
      std::vector<uint8_t> row(blocks * kind.bytes);
      for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng());
      bool expect_ok = true;
      for (size_t b = 0; b < blocks; ++b) {
        const uint8_t* block = row.data() + b * kind.bytes;
        expect_ok &= std::isfinite(F16Value(block[0] | block[1] << 8));
        if (kind.codec == TableCodec::kQ4_1) {
          expect_ok &= std::isfinite(F16Value(block[2] | block[3] << 8));
        }
      }
      std::vector<float> out(blocks * 32);
      ASSERT_EQ(DecodeTableRow(kind.codec, row.data(), nullptr, out.size(),
                               out.data()),
                expect_ok);
      if (!expect_ok) continue;
      for (size_t i = 0; i < out.size(); ++i) {
        const uint8_t* block = row.data() + i / 32 * kind.bytes;
        const double exact =
            RoundToBF16Exactly(QuantValue(kind.codec, block, i % 32));
        ASSERT_EQ(out[i], exact) << TableCodecName(kind.codec) << " " << i;
      }
    }
  }
}

TEST(QuantCodec, LiteralQuantisedBlocks) {
  float out[32];
  std::vector<uint8_t> q8(34, 0);
  q8[1] = 0x40;  // d = 2
  q8[2] = 0x80;  // -128
  q8[33] = 3;
  ASSERT_TRUE(DecodeTableRow(TableCodec::kQ8_0, q8.data(), nullptr, 32, out));
  EXPECT_EQ(out[0], -256);
  EXPECT_EQ(out[31], 6);
  std::vector<uint8_t> q4(18, 0x88);
  q4[0] = 0;
  q4[1] = 0x3c;   // d = 1
  q4[2] = 0xf0;   // elements 0 and 16
  q4[17] = 0x19;  // elements 15 and 31
  ASSERT_TRUE(DecodeTableRow(TableCodec::kQ4_0, q4.data(), nullptr, 32, out));
  EXPECT_EQ(out[0], -8);
  EXPECT_EQ(out[16], 7);
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[15], 1);
  EXPECT_EQ(out[31], -7);
  std::vector<uint8_t> q41(20, 0);
  q41[1] = 0x3c;  // d = 1
  q41[3] = 0xc0;  // m = -2
  q41[4] = 0x5f;
  ASSERT_TRUE(DecodeTableRow(TableCodec::kQ4_1, q41.data(), nullptr, 32, out));
  EXPECT_EQ(out[0], 13);
  EXPECT_EQ(out[16], 3);
  EXPECT_EQ(out[31], -2);
}

TEST(QuantCodec, ABrokenScaleIsFoundWhateverItsCodes) {
  float out[64];
  for (const QuantKind& kind : kQuantKinds) {
    for (size_t at : {size_t{0}, kind.bytes, kind.bytes + 2}) {
      if (at == kind.bytes + 2 && kind.codec != TableCodec::kQ4_1) continue;
      for (int bad : {0x7c00, 0xfc00, 0x7e00, 0xfc01}) {
        // Q4_0's code 8 and the others' code 0 make every product 0.
        std::vector<uint8_t> row(2 * kind.bytes,
                                 kind.codec == TableCodec::kQ4_0 ? 0x88 : 0);
        ASSERT_TRUE(DecodeTableRow(kind.codec, row.data(), nullptr, 64, out));
        row[at] = static_cast<uint8_t>(bad);
        row[at + 1] = static_cast<uint8_t>(bad >> 8);
        EXPECT_FALSE(DecodeTableRow(kind.codec, row.data(), nullptr, 64, out))
            << TableCodecName(kind.codec) << " byte " << at;
      }
    }
  }
}

TEST(QuantCodec, EncodedQ8RowsAreNear) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<float> x(64), decoded(64);
    for (float& v : x) v = std::ldexp(normal(rng), trial / 10 - 30);
    std::vector<uint8_t> row(68);
    EncodeQ8Row(x.data(), 64, row.data());
    for (size_t i = 0; i < 64; ++i) {
      const uint8_t* block = row.data() + i / 32 * 34;
      const double d = F16Value(block[0] | block[1] << 8);
      const double value = d * static_cast<int8_t>(block[2 + i % 32]);
      // Half a code, a little more at the largest value; where d itself is
      // subnormal half its step times 127.
      EXPECT_LE(std::fabs(value - x[i]), std::max(0.51 * d, 0x1p-25 * 127.5));
    }
  }
  std::vector<float> zero(32, 0.0f);
  std::vector<uint8_t> row(34, 1);
  EncodeQ8Row(zero.data(), 32, row.data());
  EXPECT_EQ(row, std::vector<uint8_t>(34, 0));
}

TEST(QuantCodec, EncodingQ8OfWhatItCannotHoldGivesABrokenRow) {
  for (float bad : {std::numeric_limits<float>::infinity(), 0x1p24f,
                    std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(32, 1.0f), out(32);
    x[5] = bad;
    std::vector<uint8_t> row(34);
    EncodeQ8Row(x.data(), 32, row.data());
    EXPECT_FALSE(
        DecodeTableRow(TableCodec::kQ8_0, row.data(), nullptr, 32, out.data()));
  }
}

}  // namespace
}  // namespace ecphory
