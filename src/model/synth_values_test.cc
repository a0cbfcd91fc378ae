#include "model/synth_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engram/synth_rows.h"
#include "tensor/matrix.h"
#include "tensor/table_codec.h"

namespace ecphory {
namespace {

constexpr uint64_t kRows = 96;
constexpr uint64_t kCols = 2560;

SynthTensor Tensor(DType dtype, double deviation, uint64_t cols = kCols) {
  SynthTensor tensor{"a.tensor", dtype, {kRows, cols}, {}};
  tensor.values.deviation = deviation;
  return tensor;
}

std::vector<uint8_t> Bytes(const SynthTensor& tensor, uint64_t seed = 1) {
  std::vector<uint8_t> bytes(tensor.bytes());
  SynthRowFiller(tensor, seed).Fill(0, bytes);
  return bytes;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float x : values) {
    EXPECT_TRUE(std::isfinite(x));
    sum += x;
    squares += double{x} * double{x};
  }
  const double n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n)};
}

std::vector<float> Decode(WeightFormat format, const std::vector<uint8_t>& data,
                          const std::vector<uint8_t>& scales) {
  Matrix matrix;
  matrix.format = format;
  matrix.rows = kRows;
  matrix.cols = kCols;
  matrix.data = data.data();
  matrix.scales = scales.data();
  std::vector<float> values(kRows * kCols);
  for (size_t row = 0; row < kRows; ++row) {
    DequantizeRow(matrix, row, values.data() + row * kCols);
  }
  return values;
}

// 245,760 values: the mean of independent ones is off by 0.2 % of a deviation,
// their deviation by 0.2 %; scales that many share widen that.
void ExpectMoments(const std::vector<float>& values, double deviation) {
  const Moments moments = MomentsOf(values);
  EXPECT_NEAR(moments.mean, 0, 0.01 * deviation);
  EXPECT_NEAR(moments.deviation, deviation, 0.015 * deviation);
}

struct Case {
  DType dtype;
  WeightFormat format;
};

class SynthValuesTest : public ::testing::TestWithParam<Case> {};

// From large weights to those of a row of 8192 values.
TEST_P(SynthValuesTest, StoredValuesHaveTheirDeviation) {
  for (const double deviation : {1.0, 0.0139, 0.011}) {
    const auto data = Bytes(Tensor(GetParam().dtype, deviation));
    ExpectMoments(Decode(GetParam().format, data, {}), deviation);
  }
}

TEST_P(SynthValuesTest, AnyRowAloneIsTheSame) {
  const SynthTensor tensor = Tensor(GetParam().dtype, 0.5);
  const auto all = Bytes(tensor);
  const SynthRowFiller filler(tensor, 1);
  std::vector<uint8_t> row(tensor.row_bytes());
  for (const uint64_t r : {uint64_t{0}, uint64_t{17}, kRows - 1}) {
    filler.Fill(r, row);
    EXPECT_TRUE(std::equal(row.begin(), row.end(),
                           all.begin() + static_cast<long>(r * row.size())));
  }
}

TEST_P(SynthValuesTest, SeedAndNameChangeEveryRow) {
  SynthTensor tensor = Tensor(GetParam().dtype, 0.5);
  const auto first = Bytes(tensor);
  EXPECT_NE(first, Bytes(tensor, 2));
  tensor.name = "another.tensor";
  EXPECT_NE(first, Bytes(tensor));
}

INSTANTIATE_TEST_SUITE_P(
    All, SynthValuesTest,
    ::testing::Values(Case{DType::kF32, WeightFormat::kF32},
                      Case{DType::kF16, WeightFormat::kF16},
                      Case{DType::kBF16, WeightFormat::kBF16},
                      Case{DType::kQ8_0, WeightFormat::kQ8_0},
                      Case{DType::kMXFP4, WeightFormat::kMXFP4},
                      Case{DType::kQ4_K, WeightFormat::kQ4_K},
                      Case{DType::kQ2_K, WeightFormat::kQ2_K},
                      Case{DType::kIQ2_XXS, WeightFormat::kIQ2_XXS}));

TEST(SynthValues, Fp8CodesAndTheirScalesHaveTheirDeviation) {
  for (const double deviation : {1.0, 0.0139}) {
    SynthTensor scales{"s", DType::kF8E8M0, {kRows / 32, kCols / 32}, {}};
    scales.values.deviation = deviation;
    scales.values.kind = SynthValues::Kind::kTileScales;
    const auto values = Decode(WeightFormat::kFp8Tile32,
                               Bytes(Tensor(DType::kF8E4M3, 0)), Bytes(scales));
    // 240 tiles share a scale each.
    EXPECT_NEAR(MomentsOf(values).deviation, deviation, 0.1 * deviation);
  }
}

TEST(SynthValues, Fp4CodesAndTheirScalesHaveTheirDeviation) {
  SynthTensor scales{"s", DType::kF8E8M0, {kRows, kCols / 32}, {}};
  scales.values.deviation = 0.0139;
  scales.values.kind = SynthValues::Kind::kFp4Scales;
  const auto codes = Bytes(Tensor(DType::kI8, 0, kCols / 2));
  ExpectMoments(Decode(WeightFormat::kFp4Row32, codes, Bytes(scales)), 0.0139);
}

// The bytes are part of the contract: the same on every machine, for ever.
TEST(SynthValues, BytesAreTheseOnEveryMachine) {
  const auto sum = [](DType dtype) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint8_t byte : Bytes(Tensor(dtype, 0.0139))) {
      hash = (hash ^ byte) * 0x100000001b3;
    }
    return hash;
  };
  EXPECT_EQ(sum(DType::kF32), 0xfa55071b5d9c2fbcu);
  EXPECT_EQ(sum(DType::kF16), 0x5b09ac540724f37fu);
  EXPECT_EQ(sum(DType::kQ8_0), 0x36b6a375c8fc3466u);
  EXPECT_EQ(sum(DType::kMXFP4), 0xd821bf44490dfceeu);
  EXPECT_EQ(sum(DType::kQ4_K), 0x3a8bbb2f35b53975u);
  EXPECT_EQ(sum(DType::kQ2_K), 0x156cfb4bb37813edu);
  EXPECT_EQ(sum(DType::kIQ2_XXS), 0x2e33b97159dea253u);
}

TEST(SynthValues, MeansOfColumns) {
  SynthTensor tensor{"v", DType::kF32, {3}, {}};
  tensor.values.mean = {1, -2, 3};
  std::vector<float> values(3);
  SynthRowFiller(tensor, 1).Fill(
      0, {reinterpret_cast<uint8_t*>(values.data()), 12});
  EXPECT_EQ(values, (std::vector<float>{1, -2, 3}));
}

TEST(SynthValues, ExpertIdsOfARowDiffer) {
  SynthTensor tensor{"ids", DType::kI32, {500, 6}, {}};
  tensor.values.kind = SynthValues::Kind::kExpertIds;
  for (const uint32_t limit : {6u, 7u, 256u}) {
    tensor.values.limit = limit;
    std::vector<int32_t> ids(3000);
    SynthRowFiller(tensor, 1).Fill(
        0, {reinterpret_cast<uint8_t*>(ids.data()), 12000});
    for (size_t row = 0; row < 500; ++row) {
      const std::set<int32_t> chosen(&ids[6 * row], &ids[6 * row] + 6);
      EXPECT_EQ(chosen.size(), 6u);
      EXPECT_GE(*chosen.begin(), 0);
      EXPECT_LT(*chosen.rbegin(), static_cast<int32_t>(limit));
    }
  }
}

TEST(SynthValues, TableRowsHaveTheirRms) {
  SynthTensor tensor{"t", DType::kI8, {2000, 264}, {}};
  tensor.values.kind = SynthValues::Kind::kTableRows;
  const auto bytes = Bytes(tensor);
  double squares = 0;
  std::vector<float> values(256);
  for (size_t row = 0; row < 2000; ++row) {
    ASSERT_TRUE(DecodeTableRow(TableCodec::kRow264, bytes.data() + row * 264,
                               nullptr, 256, values.data()));
    for (const float x : values) squares += double{x} * double{x};
  }
  const double rms = std::sqrt(squares / 2000 / 256);
  EXPECT_NEAR(rms, SynthTableRms(), 0.03 * rms);
}

}  // namespace
}  // namespace ecphory
