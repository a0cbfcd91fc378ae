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

// What is planned for some tokens is enough for fewer.
TEST(PanelFloats, AreNoMoreForFewerTokens) {
  for (const bool bf16 : {false, true}) {
    for (const size_t cols : {32, 512, 1280, 5120, 10400, 12288}) {
      for (const size_t planned : {96, 174, 256, 512, 1000, 4096}) {
        const size_t of_panel = bf16 ? cols / 2 : cols;
        const size_t most =
            std::min(planned, PanelShapeOf(of_panel, planned).most_tokens);
        const size_t floats = PanelFloats(cols, most, bf16);
        for (size_t tokens = 1; tokens <= planned; ++tokens) {
          ASSERT_LE(PanelFloats(cols, tokens, bf16), floats)
              << cols << " columns, " << tokens << " of " << planned;
        }
      }
    }
  }
}

// As experts call it, with all of their tokens at once. Rows in one panel and
// in several, the last of them short, and so long that few tokens are taken at
// once.
TEST(MatmulRows, AnyNumberOfTokensGivesTheBitsOfOne) {
  constexpr size_t kOut = 53;
  constexpr size_t kTokens = 1033;
  Random random(41);
  for (const size_t cols : {32, 1056, 10400}) {
    const size_t most = cols == 10400 ? 211 : kTokens;
    const GuardedArray<float> x = random.Array(most * cols);
    std::vector<const float*> x_rows(most);
    for (size_t t = 0; t < most; ++t) x_rows[t] = x.data() + t * cols;
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
      const std::vector<float> single = product(most, 1);
      for (const size_t tokens : {2, 16, 17, 178, 200, 511, 512, 513, 517, 1021,
                                  1022, 1023, 1024, 1025, 1033}) {
        if (tokens > most) break;
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
