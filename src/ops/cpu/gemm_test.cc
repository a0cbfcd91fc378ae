// Blocks of tokens: never more than the arrays that hold a block's pointers.
#include "ops/cpu/gemm.h"

#include <gtest/gtest.h>

#include "ops/weights_testing.h"

namespace ecphory {
namespace {

TEST(TokenBlock, FitsTheArraysThatHoldIt) {
  for (size_t cols = 1; cols <= 40960; cols += cols < 4096 ? 1 : 512) {
    for (size_t tokens = 1; tokens <= 2 * kMaxTokenBlock + 1; ++tokens) {
      const size_t block = TokenBlock(tokens, cols, kMaxTokenBlock);
      ASSERT_GE(block, 1u);
      ASSERT_LE(block, kMaxTokenBlock) << tokens << " x " << cols;
    }
    for (const size_t tokens : {2047, 2048, 4095, 4096, 8189, 8192}) {
      ASSERT_LE(TokenBlock(tokens, cols, kMaxTokenBlock), kMaxTokenBlock)
          << tokens << " x " << cols;
    }
  }
}

// As experts call it, with all of their tokens at once. Rows in one panel and
// in several, the last of them short.
TEST(MatmulRows, AnyNumberOfTokensGivesTheBitsOfOne) {
  constexpr size_t kOut = 53;
  constexpr size_t kTokens = 1033;
  Random random(41);
  for (const size_t cols : {32, 1056}) {
    const GuardedArray<float> x = random.Array(kTokens * cols);
    std::vector<const float*> x_rows(kTokens);
    for (size_t t = 0; t < kTokens; ++t) x_rows[t] = x.data() + t * cols;
    for (const WeightFormat format :
         {WeightFormat::kF32, WeightFormat::kQ8_0, WeightFormat::kMXFP4,
          WeightFormat::kFp4Row32}) {
      const PackedMatrix w = RandomMatrix(format, kOut, cols, random);
      const auto product = [&](size_t tokens, size_t step) {
        GuardedArray<float> y(tokens * kOut);
        std::vector<float*> y_rows(tokens);
        for (size_t t = 0; t < tokens; ++t) y_rows[t] = y.data() + t * kOut;
        for (size_t t = 0; t < tokens; t += step) {
          MatmulRows(w.view,
                     {x_rows.data() + t, y_rows.data() + t,
                      std::min(step, tokens - t)},
                     0, kOut);
        }
        return y.Copy();
      };
      const std::vector<float> single = product(kTokens, 1);
      for (const size_t tokens : {2, 16, 17, 178, 511, 512, 513, 517, 1021,
                                  1022, 1023, 1024, 1025, 1033}) {
        const std::vector<float> y = product(tokens, tokens);
        EXPECT_EQ(y, std::vector<float>(single.begin(),
                                        single.begin() + tokens * kOut))
            << WeightFormatName(format) << ", " << cols << " x " << tokens;
      }
    }
  }
}

}  // namespace
}  // namespace ecphory
