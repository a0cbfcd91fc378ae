// Every code and scale that the vector decoders can meet, on every target,
// against the scalar definitions of src/tensor.
#include <gtest/gtest.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/cpu/row_decode.h"
#include "ops/cpu/testing.h"
#include "ops/ops.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

constexpr size_t kCols = 64;

class DecodeTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { SetCpuTargetForTest(GetParam()); }
  void TearDown() override { SetCpuTargetForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, DecodeTest,
                         testing::ValuesIn(CpuTargetsForTest()),
                         [](const auto& target) {
                           return std::string(
                               CpuTargetNameForTest(target.param));
                         });

// Equal values: NaN equals NaN, and -0 equals 0.
bool Same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// Column by column, W e_c is column c of W, exactly: the other products are
// zeros. Rows with a NaN or an infinity are not, and are NaN everywhere.
void ExpectColumns(const Matrix& w, size_t tokens, const std::string& what) {
  const size_t cols = w.cols;
  std::vector<float> expected(w.rows * cols);
  std::vector<bool> finite(w.rows, true);
  for (size_t r = 0; r < w.rows; ++r) {
    DequantizeRow(w, r, expected.data() + r * cols);
    for (size_t c = 0; c < cols; ++c) {
      finite[r] = finite[r] && std::isfinite(expected[r * cols + c]);
    }
  }
  ThreadPool pool(1);
  for (size_t c = 0; c < cols; ++c) {
    std::vector<float> x(tokens * cols, 0.0f);
    for (size_t t = 0; t < tokens; ++t) x[t * cols + c] = 1;
    std::vector<float> y(tokens * w.rows);
    CpuOps().matmul(
        {.weight = w, .x = x.data(), .y = y.data(), .tokens = tokens}, pool);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t r = i % w.rows;
      const float want = expected[r * cols + c];
      ASSERT_TRUE(finite[r] ? Same(y[i], want) : !std::isfinite(y[i]))
          << what << ", row " << r << ", column " << c << ", " << tokens
          << " tokens: " << y[i] << ", expected " << want;
    }
  }
}

void ExpectDecoded(const Matrix& w, const std::string& what) {
  ExpectColumns(w, 1, what);  // codes to products in registers
  ExpectColumns(w, 2, what);  // unpacked first
}

// Row r repeats code r in all columns but one, so that every code is in every
// vector position.
TEST_P(DecodeTest, Fp8WeightsEveryCodeAndScale) {
  std::vector<uint8_t> codes(256 * kCols);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i / kCols);
  }
  std::vector<uint8_t> scales(256 / 32 * (kCols / 32));
  for (const uint8_t scale :
       {0, 1, 9, 10, 100, 127, 140, 245, 246, 247, 254, 255}) {
    scales.assign(scales.size(), scale);
    ExpectDecoded({.format = WeightFormat::kFp8Tile32,
                   .rows = 256,
                   .cols = kCols,
                   .data = codes.data(),
                   .scales = scales.data()},
                  "fp8 scale " + std::to_string(scale));
  }
}

#if defined(__SSE__)
// A caller's thread may take subnormals for zeros. Codes are none, whatever
// they are on the way to products.
TEST_P(DecodeTest, Fp8WeightsWhereSubnormalsAreZeros) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZeros = 0x40;
  std::vector<uint8_t> codes(32 * kCols);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i / kCols % 8);
  }
  const std::vector<uint8_t> scales(kCols / 32, 127);
  const Matrix w{.format = WeightFormat::kFp8Tile32,
                 .rows = 32,
                 .cols = kCols,
                 .data = codes.data(),
                 .scales = scales.data()};
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushToZero | kDenormalsAreZeros);
  ExpectDecoded(w, "fp8 subnormal codes");
  _mm_setcsr(before);
}
#endif

// One token's inputs take up the scales where they can, several tokens' do not.
TEST_P(DecodeTest, Fp8InputsOfAnyMagnitudeGiveTheBitsOfSeveralTokens) {
  constexpr size_t kRows = 40;  // a tile and a part of one
  std::vector<uint8_t> codes(kRows * kCols);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i * 37 + i / 11);
    if ((codes[i] & 0x7f) == 0x7f) codes[i] = 0;
  }
  ThreadPool pool(1);
  for (int exponent = -149; exponent <= 128; ++exponent) {
    std::vector<float> x(2 * kCols);
    for (size_t i = 0; i < kCols; ++i) {
      x[i] = i % 5 == 0 ? 0 : std::ldexp(1 + 0.0625f * (i % 16), exponent);
      if (i % 3 == 0) x[i] = -x[i];
    }
    // And one of another magnitude.
    x[exponent & 63] = std::ldexp(1.5f, -exponent / 2);
    std::copy_n(x.begin(), kCols, x.begin() + kCols);
    for (const uint8_t scale : {0, 1, 9, 10, 60, 127, 190, 245, 246, 254}) {
      std::vector<uint8_t> scales(2 * kCols / 32, scale);
      scales[1] = 127;
      const auto product = [&](size_t tokens) {
        std::vector<float> y(tokens * kRows);
        CpuOps().matmul({.weight = {.format = WeightFormat::kFp8Tile32,
                                    .rows = kRows,
                                    .cols = kCols,
                                    .data = codes.data(),
                                    .scales = scales.data()},
                         .x = x.data(),
                         .y = y.data(),
                         .tokens = tokens},
                        pool);
        return y;
      };
      const std::vector<float> one = product(1);
      const std::vector<float> two = product(2);
      for (size_t r = 0; r < kRows; ++r) {
        ASSERT_TRUE(Same(one[r], two[r]))
            << "row " << r << ", inputs of 2^" << exponent << ", scale "
            << int{scale} << ": " << one[r] << " and " << two[r];
      }
    }
  }
}

// A byte holds two codes; 256 rows hold every pair.
TEST_P(DecodeTest, Fp4WeightsEveryPairAndScale) {
  std::vector<uint8_t> codes(256 * kCols / 2);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i / (kCols / 2) + i);
  }
  std::vector<uint8_t> scales(256 * (kCols / 32));
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = static_cast<uint8_t>(i / 2);
  }
  ExpectDecoded({.format = WeightFormat::kFp4Row32,
                 .rows = 256,
                 .cols = kCols,
                 .data = codes.data(),
                 .scales = scales.data()},
                "fp4");
}

TEST_P(DecodeTest, Mxfp4WeightsEveryPairAndScale) {
  constexpr size_t kBlocks = 256 * kCols / 32;
  std::vector<uint8_t> data;
  for (size_t block = 0; block < kBlocks; ++block) {
    data.push_back(static_cast<uint8_t>(block / 2));
    for (size_t i = 0; i < 16; ++i) {
      data.push_back(static_cast<uint8_t>(block * 16 + i));
    }
  }
  ExpectDecoded({.format = WeightFormat::kMXFP4,
                 .rows = 256,
                 .cols = kCols,
                 .data = data.data()},
                "mxfp4");
}

TEST_P(DecodeTest, Q8WeightsEveryCodeAndOddScales) {
  const uint16_t scales[] = {0x0000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x7bff,
                             0x8001, 0xbc00, 0x7c00, 0x7e00, 0x2e66, 0x1234};
  std::vector<uint8_t> data;
  size_t code = 0;
  for (const uint16_t scale : scales) {
    for (size_t block = 0; block < 8 * kCols / 32; ++block) {
      data.push_back(static_cast<uint8_t>(scale & 255));
      data.push_back(static_cast<uint8_t>(scale >> 8));
      for (size_t i = 0; i < 32; ++i) {
        data.push_back(static_cast<uint8_t>(code++));
      }
    }
  }
  ExpectDecoded({.format = WeightFormat::kQ8_0,
                 .rows = 8 * std::size(scales),
                 .cols = kCols,
                 .data = data.data()},
                "q8_0");
}

// Zeros, subnormals, the largest, negative ones, an infinity and a NaN.
constexpr uint16_t kOddHalves[] = {0x0000, 0x0001, 0x03ff, 0x0400, 0x3c00,
                                   0x7bff, 0x8001, 0xbc00, 0x7c00, 0x7e00};

// A row is one block of counted bytes, with an odd d, and where the format has
// one an odd dmin.
void ExpectSuperBlocks(WeightFormat format, size_t d_place, bool has_min) {
  Matrix w{.format = format, .rows = 0, .cols = 256};
  const size_t block = w.row_bytes();
  std::vector<uint8_t> data;
  for (const uint16_t d : kOddHalves) {
    for (const uint16_t dmin : kOddHalves) {
      // Few rows of what makes no difference.
      if (!has_min && dmin != kOddHalves[0] && d != 0x3c00) continue;
      data.resize((w.rows + 1) * block);
      uint8_t* const row = data.data() + w.rows * block;
      for (size_t i = 0; i < block; ++i) {
        row[i] = static_cast<uint8_t>(i + w.rows * 29 + i / 8 * w.rows);
      }
      std::memcpy(row + d_place, &d, sizeof(d));
      if (has_min) std::memcpy(row + d_place + 2, &dmin, sizeof(dmin));
      ++w.rows;
    }
  }
  w.data = data.data();
  ExpectDecoded(w, WeightFormatName(format));
}

TEST_P(DecodeTest, SuperBlocksOddScales) {
  ExpectSuperBlocks(WeightFormat::kQ4_K, 0, true);
  ExpectSuperBlocks(WeightFormat::kQ2_K, 80, true);
  ExpectSuperBlocks(WeightFormat::kIQ2_XXS, 0, false);
}

TEST_P(DecodeTest, Iq2xxsEveryEntrySignIndexAndScale) {
  constexpr size_t kRows = 16;  // of 32 entries: the grid twice over
  std::vector<uint8_t> data(kRows * 66);
  for (size_t r = 0; r < kRows; ++r) {
    uint8_t* const block = data.data() + r * 66;
    const uint16_t one = 0x3c00;
    std::memcpy(block, &one, sizeof(one));
    for (size_t part = 0; part < 8; ++part) {
      uint8_t* const p = block + 2 + 8 * part;
      uint32_t word = static_cast<uint32_t>((r + 3 * part) % 16) << 28;
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t entry = static_cast<uint32_t>(r * 32 + part * 4) + k;
        p[k] = static_cast<uint8_t>(entry);
        word |= (entry * 5 + k) % 128 << (7 * k);
      }
      std::memcpy(p + 4, &word, sizeof(word));
    }
  }
  ExpectDecoded({.format = WeightFormat::kIQ2_XXS,
                 .rows = kRows,
                 .cols = 256,
                 .data = data.data()},
                "iq2_xxs");
}

// Wherever the code lies, its row alone is NaN, and the three decoded with it
// keep their bits.
TEST_P(DecodeTest, Fp8NanSpoilsItsRowAlone) {
  std::vector<uint8_t> codes(8 * kCols, 0x38);  // 1
  for (size_t i = 0; i < codes.size(); i += 3) codes[i] = 0xb9;
  const std::vector<uint8_t> scales(kCols / 32, 127);
  const std::vector<float> x(kCols, 0.3f);
  const auto product = [&] {
    std::vector<float> y(8);
    ThreadPool pool(1);
    CpuOps().matmul({.weight = {.format = WeightFormat::kFp8Tile32,
                                .rows = 8,
                                .cols = kCols,
                                .data = codes.data(),
                                .scales = scales.data()},
                     .x = x.data(),
                     .y = y.data(),
                     .tokens = 1},
                    pool);
    return y;
  };
  const std::vector<float> without = product();
  for (size_t i = 0; i < codes.size(); ++i) {
    const uint8_t code = codes[i];
    codes[i] = i % 2 == 0 ? 0x7f : 0xff;
    const std::vector<float> with = product();
    codes[i] = code;
    for (size_t r = 0; r < 8; ++r) {
      if (r == i / kCols) {
        EXPECT_TRUE(std::isnan(with[r])) << i;
      } else {
        EXPECT_EQ(without[r], with[r]) << i << ", row " << r;
      }
    }
  }
}

TEST_P(DecodeTest, HalfWeightsEveryCode) {
  constexpr size_t kRows = 65536 / kCols;
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint16_t>(i);
  }
  for (const WeightFormat format : {WeightFormat::kF16, WeightFormat::kBF16}) {
    ExpectDecoded({.format = format,
                   .rows = kRows,
                   .cols = kCols,
                   .data = reinterpret_cast<const uint8_t*>(codes.data())},
                  WeightFormatName(format));
  }
}

TEST_P(DecodeTest, CacheRowsEveryByteAndScale) {
  for (const RowFormat format :
       {RowFormat::kF32, RowFormat::kFp8Block32, RowFormat::kFp4Block16,
        RowFormat::kFp4Block32}) {
    for (const size_t dim : {32, 64, 96, 160}) {
      const size_t row_bytes = RowBytes(format, dim);
      std::vector<uint8_t> data(256 * row_bytes);
      std::vector<const uint8_t*> rows;
      for (size_t r = 0; r < 256; ++r) {
        uint8_t* const row = data.data() + r * row_bytes;
        for (size_t i = 0; i < row_bytes; ++i) {
          row[i] = static_cast<uint8_t>(r + 7 * i);
        }
        rows.push_back(row);
      }
      std::vector<float> actual(256 * dim);
      DecodeRows(format, rows.data(), rows.size(), dim, actual.data());
      std::vector<float> expected(dim);
      for (size_t r = 0; r < 256; ++r) {
        DecodeRow(format, rows[r], dim, expected.data());
        for (size_t i = 0; i < dim; ++i) {
          ASSERT_TRUE(Same(actual[r * dim + i], expected[i]))
              << RowFormatName(format) << " [" << r << ", " << i << "] is "
              << actual[r * dim + i] << ", expected " << expected[i];
        }
      }
    }
  }
}

TEST_P(DecodeTest, CacheRowsOfOneHalfBlock) {
  std::vector<uint8_t> row = {0x10, 0x32, 0x54, 0x76, 0x98,
                              0xba, 0xdc, 0xfe, 0x38};
  const uint8_t* const rows[] = {row.data()};
  float actual[16], expected[16];
  DecodeRows(RowFormat::kFp4Block16, rows, 1, 16, actual);
  DecodeRow(RowFormat::kFp4Block16, row.data(), 16, expected);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(expected[i], actual[i]) << i;
}

TEST_P(DecodeTest, TheForcedTargetIsTheOneThatRuns) {
  EXPECT_STREQ(CpuTargetNameForTest(GetParam()), CpuTargetName());
}

}  // namespace
}  // namespace ecphory
