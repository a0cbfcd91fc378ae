#include "ops/cpu/gemm_bf16.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/cpu/testing.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

bool Takes(WeightFormat format, size_t cols = 64, size_t tokens = 64,
           MatmulInput input = MatmulInput::kBF16) {
  return TakesBf16({.format = format, .rows = 4, .cols = cols}, input, tokens);
}

class GemmBf16Test : public testing::Test {
 protected:
  void TearDown() override { SetCpuTargetForTest(0); }
};

// The kernel runs wherever it can: nothing else would show that it did not.
TEST_F(GemmBf16Test, RunsWhereTheProcessorAndTheTargetCan) {
#if defined(__x86_64__)
  const bool processor = __builtin_cpu_supports("avx512bf16") != 0;
#else
  const bool processor = false;
#endif
  for (const int64_t target : CpuTargetsForTest()) {
    SetCpuTargetForTest(target);
    const std::string name = CpuTargetNameForTest(target);
    EXPECT_EQ(processor && name.starts_with("AVX3"),
              Takes(WeightFormat::kFp8Tile32))
        << name;
  }
}

TEST_F(GemmBf16Test, TakesWhatIsExactAndPays) {
  if (!Takes(WeightFormat::kBF16)) GTEST_SKIP() << "no AVX512_BF16";
  EXPECT_TRUE(Takes(WeightFormat::kMXFP4));
  EXPECT_TRUE(Takes(WeightFormat::kFp4Row32));
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kQ8_0,
        WeightFormat::kQ4_K, WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS}) {
    EXPECT_FALSE(Takes(format, 256)) << WeightFormatName(format);
  }
  EXPECT_FALSE(Takes(WeightFormat::kBF16, 48));
  EXPECT_FALSE(Takes(WeightFormat::kBF16, 64, 1));
  EXPECT_FALSE(Takes(WeightFormat::kBF16, 64, 64, MatmulInput::kF32));
}

TEST_F(GemmBf16Test, DenormalsAreZeroInItsScopeOnly) {
  volatile float smallest = std::numeric_limits<float>::min();
  const auto half = [&] { return smallest * 0.5f; };
  const bool kernel = Takes(WeightFormat::kBF16);
  {
    const DenormalsAreZero scope(MatmulInput::kBF16);
    EXPECT_EQ(kernel, half() == 0);
  }
  EXPECT_NE(0, half());
  const DenormalsAreZero scope(MatmulInput::kF32);
  EXPECT_NE(0, half());
}

}  // namespace
}  // namespace ecphory
