#include "ops/cpu/gemm_amx.h"

#include <fstream>
#include <sstream>

#include "ops/cpu/testing.h"
#include "ops/weights_testing.h"

namespace ecphory {
namespace {

Matrix Weight(WeightFormat format, size_t cols = 256) {
  return {.format = format, .rows = 4, .cols = cols};
}

// As the system names them.
bool ProcessorHas(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == flag) return true;
    }
    return false;
  }
  return false;
}

class GemmAmxTest : public testing::Test {
 protected:
  void TearDown() override { SetCpuTargetForTest(0); }
};

// It runs wherever it can: nothing else would show that it did not.
TEST_F(GemmAmxTest, RunsWhereTheProcessorAndTheTargetCan) {
  for (const int64_t target : CpuTargetsForTest()) {
    SetCpuTargetForTest(target);
    const std::string name = CpuTargetNameForTest(target);
    EXPECT_EQ(ProcessorHas("amx_bf16") && name == "AVX3_DL", UsesAmx()) << name;
    EXPECT_EQ(name == "AVX3_DL", PacksForAmx()) << name;
  }
}

TEST_F(GemmAmxTest, TakesWhatIsExact) {
  if (!UsesAmx()) GTEST_SKIP() << "no AMX";
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32}) {
    const Matrix weight = Weight(format);
    EXPECT_TRUE(TakesAmx(weight, MatmulInput::kBF16, 9));
    EXPECT_FALSE(TakesAmx(weight, MatmulInput::kBF16, 8));
    EXPECT_FALSE(TakesAmx(weight, MatmulInput::kF32, 64));
    EXPECT_FALSE(TakesAmx(weight, MatmulInput::kBF16InOrder, 64));
  }
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kQ8_0,
        WeightFormat::kQ4_K, WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS}) {
    EXPECT_FALSE(TakesAmx(Weight(format), MatmulInput::kBF16, 64));
  }
  EXPECT_FALSE(
      TakesAmx(Weight(WeightFormat::kBF16, 48), MatmulInput::kBF16, 64));
}

// In whatever place they lie.
TEST_F(GemmAmxTest, PackedInputsAreTheInputs) {
  if (!PacksForAmx()) GTEST_SKIP() << "no AVX-512 VBMI";
  constexpr size_t kCols = 96;
  Random random(51);
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kMXFP4, WeightFormat::kFp4Row32}) {
    for (const size_t tokens : {1, 3, 16, 21, 40}) {
      GuardedArray<float> x = random.Array(tokens * kCols);
      x[5] = 0x1.fffffep127f;
      x[6] = -0x1.234566p-110f;
      x[7] = std::numeric_limits<float>::infinity();
      x[8] = 0x1p-133f;
      std::vector<const float*> rows(tokens);
      for (float& v : x) v = RoundToBF16(v);
      for (size_t t = 0; t < tokens; ++t) rows[t] = x.data() + t * kCols;
      GuardedArray<uint16_t> values(tokens * kCols);
      GuardedArray<uint32_t> largest(tokens);
      const AmxInputs inputs{.values = values.data(),
                             .largest = largest.data(),
                             .tokens = tokens,
                             .cols = kCols,
                             .set_tokens = 32};
      for (size_t g = 0; g < inputs.groups(); ++g) {
        PackAmxGroup(format, inputs, g, 0, kCols / kAmxBlock, rows.data());
      }
      for (size_t t = 0; t < tokens; ++t) {
        std::vector<float> back(kCols);
        UnpackAmxInput(format, inputs, t, back.data());
        EXPECT_EQ(std::vector<float>(rows[t], rows[t] + kCols), back)
            << WeightFormatName(format) << ", token " << t << " of " << tokens;
      }
    }
  }
}

constexpr WeightFormat kFormats[] = {WeightFormat::kBF16, WeightFormat::kMXFP4,
                                     WeightFormat::kFp8Tile32,
                                     WeightFormat::kFp4Row32};

struct UnpackedRow {
  bool left;
  std::vector<float> values;
};

UnpackedRow Unpack(const Matrix& weight, size_t row) {
  UnpackedRow unpacked{false, std::vector<float>(weight.cols)};
  unpacked.left = UnpackAmxRow(weight, row, unpacked.values.data());
  return unpacked;
}

std::vector<float> Dequantized(const Matrix& weight, size_t row) {
  std::vector<float> values(weight.cols);
  DequantizeRow(weight, row, values.data());
  return values;
}

TEST_F(GemmAmxTest, RowsUnpackToTheirValues) {
  if (!PacksForAmx()) GTEST_SKIP() << "no AVX-512 VBMI";
  Random random(52);
  for (const WeightFormat format : kFormats) {
    for (const size_t cols : {32, 96, 256, 288, 1056}) {
      const PackedMatrix weight = RandomMatrix(format, 35, cols, random, 3);
      for (size_t row = 0; row < 35; ++row) {
        const UnpackedRow unpacked = Unpack(weight.view, row);
        EXPECT_FALSE(unpacked.left);
        EXPECT_EQ(Dequantized(weight.view, row), unpacked.values)
            << WeightFormatName(format) << ", row " << row << " of " << cols;
      }
    }
  }
}

// A row of nine blocks, the last of `codes` and scaled by `scale`.
PackedMatrix EndsIn(WeightFormat format, uint8_t scale,
                    const std::vector<uint8_t>& codes) {
  Random random(53);
  PackedMatrix weight = RandomMatrix(format, 1, 9 * kAmxBlock, random);
  std::copy(codes.begin(), codes.end(), weight.data.end() - codes.size());
  if (format == WeightFormat::kMXFP4) {
    *(weight.data.end() - codes.size() - 1) = scale;
  } else {
    *(weight.scales.end() - 1) = scale;
  }
  return weight;
}

// All codes but NaN in turn, `bytes` a block.
std::vector<std::vector<uint8_t>> BlocksOfAllCodes(WeightFormat format) {
  const bool e4m3 = format == WeightFormat::kFp8Tile32;
  std::vector<std::vector<uint8_t>> blocks;
  for (size_t first = 0; first < 256;) {
    std::vector<uint8_t>& block = blocks.emplace_back();
    for (size_t i = 0; i < (e4m3 ? 32 : 16); ++i, ++first) {
      const bool nan = e4m3 && first % 128 == 127;
      block.push_back(static_cast<uint8_t>(nan ? first - 1 : first));
    }
  }
  return blocks;
}

TEST_F(GemmAmxTest, EveryScaleUnpacksOrLeavesTheRow) {
  if (!PacksForAmx()) GTEST_SKIP() << "no AVX-512 VBMI";
  for (const WeightFormat format :
       {WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32}) {
    const auto blocks = BlocksOfAllCodes(format);
    const size_t bytes = blocks[0].size();
    for (size_t scale = 0; scale < 256; ++scale) {
      const auto code = static_cast<uint8_t>(scale);
      const bool inside = scale >= 127 - 60 && scale <= 127 + 60;
      for (const std::vector<uint8_t>& block : blocks) {
        const PackedMatrix weight = EndsIn(format, code, block);
        const UnpackedRow unpacked = Unpack(weight.view, 0);
        ASSERT_EQ(!inside, unpacked.left) << scale;
        if (!inside) continue;
        ASSERT_EQ(Dequantized(weight.view, 0), unpacked.values)
            << WeightFormatName(format) << ", scale " << scale;
      }
      // Zeros are what they are, unless the scale is NaN.
      const PackedMatrix zeros =
          EndsIn(format, code, std::vector<uint8_t>(bytes));
      const UnpackedRow unpacked = Unpack(zeros.view, 0);
      ASSERT_EQ(scale == 255, unpacked.left) << scale;
      if (unpacked.left) continue;
      ASSERT_EQ(Dequantized(zeros.view, 0), unpacked.values) << scale;
    }
  }
}

TEST_F(GemmAmxTest, ANaNCodeLeavesTheRow) {
  if (!PacksForAmx()) GTEST_SKIP() << "no AVX-512 VBMI";
  for (const uint8_t nan : {0x7f, 0xff}) {
    std::vector<uint8_t> block(32);
    block[9] = nan;
    const auto weight = EndsIn(WeightFormat::kFp8Tile32, 127, block);
    EXPECT_TRUE(Unpack(weight.view, 0).left);
  }
}

TEST_F(GemmAmxTest, TheLargestPlainValueLeavesTheRow) {
  if (!PacksForAmx()) GTEST_SKIP() << "no AVX-512 VBMI";
  constexpr size_t kCols = 9 * kAmxBlock;
  const auto leaves = [](float value, size_t at, float rest) {
    std::vector<uint16_t> row(kCols, F32ToBF16(rest));
    row[at] = F32ToBF16(value);
    const Matrix weight{.format = WeightFormat::kBF16,
                        .rows = 1,
                        .cols = kCols,
                        .data = reinterpret_cast<const uint8_t*>(row.data())};
    return Unpack(weight, 0).left;
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const size_t at : {size_t{0}, size_t{1}, kCols - 1}) {
    for (const float value : {0.0f, 0x1p-60f, -1.0f, 0x1p60f}) {
      EXPECT_FALSE(leaves(value, at, 0)) << value;
    }
    EXPECT_FALSE(leaves(0x1p-100f, at, 1));
    for (const float value : {0x1p-61f, -0x1p61f, kInfinity, -kInfinity}) {
      EXPECT_TRUE(leaves(value, at, 0)) << value;
    }
    EXPECT_TRUE(leaves(std::numeric_limits<float>::quiet_NaN(), at, 1));
  }
}

TEST_F(GemmAmxTest, LeavesInputsOutsideItsRange) {
  if (!PacksForAmx()) GTEST_SKIP() << "no AVX-512 VBMI";
  const auto leaves = [](float value) {
    std::vector<float> x(32);
    x[17] = value;
    return AmxLeavesToken(LargestMagnitude(x.data(), x.size()));
  };
  for (const float value : {0.0f, -0x1p-60f, 1.0f, 0x1p60f}) {
    EXPECT_FALSE(leaves(value)) << value;
  }
  for (const float value :
       {0x1p-61f, -0x1p-149f, 0x1.1p60f, std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(leaves(value)) << value;
  }
}

}  // namespace
}  // namespace ecphory
