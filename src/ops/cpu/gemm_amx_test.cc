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

// Three columns are the input to the last bit, in whatever place they lie.
TEST_F(GemmAmxTest, PackedInputsAreTheInputs) {
  if (!UsesAmx()) GTEST_SKIP() << "no AMX";
  constexpr size_t kCols = 96;
  Random random(51);
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kMXFP4, WeightFormat::kFp4Row32}) {
    for (const size_t tokens : {1, 3, 16, 21, 40}) {
      GuardedArray<float> x = random.Array(tokens * kCols);
      x[5] = 0x1.fffffep127f;
      x[6] = -0x1.234566p-110f;
      x[7] = std::numeric_limits<float>::infinity();
      std::vector<const float*> rows(tokens);
      for (size_t t = 0; t < tokens; ++t) rows[t] = x.data() + t * kCols;
      GuardedArray<uint16_t> values(3 * tokens * kCols);
      GuardedArray<uint32_t> largest(tokens);
      const AmxInputs inputs{.values = values.data(),
                             .largest = largest.data(),
                             .tokens = tokens,
                             .cols = kCols,
                             .parts = 3,
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

TEST_F(GemmAmxTest, LeavesInputsOutsideItsRange) {
  if (!UsesAmx()) GTEST_SKIP() << "no AMX";
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
