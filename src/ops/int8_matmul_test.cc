// Products with the input rounded to int8 (MatmulInput::kInt8).
#include "ops/matmul.h"
#include "ops/testing.h"
#include "ops/weights_testing.h"
#include "tensor/int8_block.h"

namespace ecphory {
namespace {

constexpr size_t kManyTokens = kMaxFewTokens + 1;

std::vector<WeightFormat> Int8Formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat format : kWeightFormats) {
    if (TakesInt8(format)) formats.push_back(format);
  }
  return formats;
}

// What x is taken for, in double.
std::vector<double> Rounded(const float* x, size_t n) {
  std::vector<double> rounded(n);
  for (size_t i = 0; i < n; i += kInt8Block) {
    int8_t codes[kInt8Block];
    const double scale = RoundToInt8(x + i, codes);
    for (size_t j = 0; j < kInt8Block; ++j) rounded[i + j] = scale * codes[j];
  }
  return rounded;
}

class Int8MatmulTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (is_cuda()) GTEST_SKIP() << "CUDA takes inputs as they are";
  }

  void Run(const PackedMatrix& w, const float* x, size_t tokens, float* y,
           size_t threads) {
    ops().matmul({.weight = w.view,
                  .x = x,
                  .y = y,
                  .tokens = tokens,
                  .input = MatmulInput::kInt8},
                 Pool(threads));
  }

  // Sums of fp32, of products with two rounded scales. Q4_K and Q2_K add up
  // products and mins apart, each of which may be twice the weight.
  double Bound(size_t in) const { return 4 * SumBound(in); }

  void Check(const PackedMatrix& w, const GuardedArray<float>& x, size_t tokens,
             const char* what) {
    const size_t out = w.view.rows, in = w.view.cols;
    std::vector<Expected> expected(tokens * out);
    for (size_t t = 0; t < tokens; ++t) {
      const std::vector<double> rounded = Rounded(x.data() + t * in, in);
      for (size_t o = 0; o < out; ++o) {
        for (size_t i = 0; i < in; ++i) {
          expected[t * out + o].Add(w.values[o * in + i] * rounded[i]);
        }
      }
    }
    for (const size_t threads : {1, 3}) {
      GuardedArray<float> y(tokens * out);
      Run(w, x.data(), tokens, y.data(), threads);
      EXPECT_TRUE(AllClose(expected, y.data(), Bound(in)))
          << WeightFormatName(w.view.format) << " [" << out << ", " << in
          << "] x " << tokens << ", " << what;
    }
  }

  void Check(WeightFormat format, size_t out, size_t in, size_t tokens,
             size_t first_row = 0) {
    const PackedMatrix w = RandomMatrix(format, out, in, random_, first_row);
    Check(w, random_.Array(tokens * in), tokens, "random");
  }

  Random random_{41};
};
ECPHORY_INSTANTIATE_OP_TEST(Int8MatmulTest);

// Every number of blocks up to more than a group of kernels, and a long row.
TEST_P(Int8MatmulTest, EveryFormatAndLength) {
  for (const WeightFormat format : Int8Formats()) {
    const size_t block = BlockValues(format);
    for (size_t blocks = 1; blocks * block <= 1120; ++blocks) {
      Check(format, 5, blocks * block, 1 + blocks % 3);
      Check(format, 5, blocks * block, kManyTokens + blocks % 7);
    }
    Check(format, 3, 5120, 2);
  }
}

TEST_P(Int8MatmulTest, EveryFormatAndRowCount) {
  for (const WeightFormat format : Int8Formats()) {
    for (const size_t out : {1, 2, 3, 4, 7, 8, 33, 127}) {
      Check(format, out, RowOf(format, 96), 1);
      Check(format, out, RowOf(format, 96), 2, 3);
      Check(format, out, RowOf(format, 96), kManyTokens + 5, 3);
    }
  }
}

// More tokens than are rounded at once.
TEST_P(Int8MatmulTest, EveryFormatAndTokenCount) {
  for (const WeightFormat format : Int8Formats()) {
    for (const size_t tokens : {1, 2, 3, 8, 9, 33, 300}) {
      Check(format, 6, RowOf(format, 64), tokens);
    }
  }
}

// Codes and inputs as large as they get: no sum may saturate.
TEST_P(Int8MatmulTest, ExtremeCodesTimesExtremeInputs) {
  for (const WeightFormat format : Int8Formats()) {
    for (const uint8_t byte : {0x00, 0x7f, 0x80, 0xff, 0x77}) {
      PackedMatrix w = RandomMatrix(format, 4, RowOf(format, 544), random_);
      const size_t row_bytes = w.view.row_bytes();
      const size_t blocks = w.view.cols / BlockValues(format);
      for (size_t i = 0; i < 4 * row_bytes; ++i) {
        // The f16 or e8m0 scales stay what they are.
        const size_t at = i % row_bytes % (row_bytes / blocks);
        const bool scale = (format == WeightFormat::kQ2_K && at >= 80) ||
                           (format == WeightFormat::kQ4_K && at < 4) ||
                           (format == WeightFormat::kMXFP4 && at < 1) ||
                           (format == WeightFormat::kQ8_0 && at < 2) ||
                           (format == WeightFormat::kIQ2_XXS && at < 2);
        if (!scale) w.data[i] = byte;
      }
      for (size_t r = 0; r < 4; ++r) {
        DequantizeRow(w.view, r, w.values.data() + r * w.view.cols);
      }
      for (const float sign : {1.0f, -1.0f}) {
        GuardedArray<float> x(kManyTokens * w.view.cols);
        for (float& value : x) value = sign;
        for (size_t i = 0; i < w.view.cols; i += 2) x[i] = -sign;
        for (size_t i = 1; i < w.view.cols; i += 3) x[w.view.cols + i] = 0;
        Check(w, x, 3, "extremes");
        Check(w, x, kManyTokens, "extremes");
      }
    }
  }
}

// The promise of tensor/int8_block.h, seen from outside.
TEST_P(Int8MatmulTest, ErrorsAreThoseOfHalfAScale) {
  for (const WeightFormat format : Int8Formats()) {
    const size_t in = RowOf(format, 320);
    const PackedMatrix w = RandomMatrix(format, 9, in, random_);
    const GuardedArray<float> x = random_.Array(in);
    GuardedArray<float> y(9);
    Run(w, x.data(), 1, y.data(), 1);
    for (size_t o = 0; o < 9; ++o) {
      double exact = 0, allowed = 0;
      for (size_t i = 0; i < in; ++i) {
        const float* const block = x.data() + i / 32 * 32;
        double largest = 0;
        for (size_t j = 0; j < 32; ++j) {
          largest = std::max<double>(largest, std::fabs(block[j]));
        }
        exact += static_cast<double>(w.values[o * in + i]) * x[i];
        allowed += std::fabs(w.values[o * in + i]) * largest / 253;
      }
      EXPECT_NEAR(exact, y[o], allowed) << WeightFormatName(format);
      EXPECT_NE(static_cast<float>(exact), y[o]) << WeightFormatName(format);
    }
  }
}

TEST_P(Int8MatmulTest, OtherFormatsTakeTheInputAsItIs) {
  for (const WeightFormat format : kWeightFormats) {
    if (TakesInt8(format)) continue;
    const PackedMatrix w = RandomMatrix(format, 7, 96, random_);
    const GuardedArray<float> x = random_.Array(2 * 96);
    GuardedArray<float> exact(2 * 7), y(2 * 7);
    ops().matmul(
        {.weight = w.view, .x = x.data(), .y = exact.data(), .tokens = 2},
        Pool(1));
    Run(w, x.data(), 2, y.data(), 1);
    EXPECT_TRUE(SameBits(exact, y)) << WeightFormatName(format);
  }
}

// But for whether there are more than kMaxFewTokens.
TEST_P(Int8MatmulTest, ATokensBitsDependOnNothingElse) {
  constexpr size_t kOut = 67;
  constexpr size_t kTokens = 43;
  for (const WeightFormat format : Int8Formats()) {
    const size_t in = RowOf(format, 1056);
    const PackedMatrix w = RandomMatrix(format, kOut, in, random_);
    const GuardedArray<float> x = random_.Array(kTokens * in);
    GuardedArray<float> few(kTokens * kOut), many(kTokens * kOut);
    for (size_t t = 0; t < kTokens; ++t) {
      Run(w, x.data() + t * in, 1, few.data() + t * kOut, 1);
    }
    Run(w, x.data(), kTokens, many.data(), 1);
    for (const size_t chunk : {1, 2, 7, 8, 12, 17, 40}) {
      for (const size_t threads : {1, 2, 3}) {
        for (size_t t = 0; t < kTokens; t += chunk) {
          const size_t count = std::min(chunk, kTokens - t);
          GuardedArray<float> y(count * kOut), expected(count * kOut);
          Run(w, x.data() + t * in, count, y.data(), threads);
          const auto& from = count <= kMaxFewTokens ? few : many;
          std::copy_n(from.data() + t * kOut, count * kOut, expected.data());
          EXPECT_TRUE(SameBits(expected, y))
              << WeightFormatName(format) << ", tokens " << t << " to "
              << t + count << ", " << threads << " threads";
        }
      }
    }
  }
}

// More than are rounded at once, none of which may be taken for few.
TEST_P(Int8MatmulTest, ManyTokensStayManyInEveryBlock) {
  constexpr size_t kOut = 5;
  for (const size_t tokens : {257, 513}) {
    const PackedMatrix w = RandomMatrix(WeightFormat::kQ8_0, kOut, 64, random_);
    const GuardedArray<float> x = random_.Array(tokens * 64);
    GuardedArray<float> whole(tokens * kOut), last(16 * kOut);
    Run(w, x.data(), tokens, whole.data(), 1);
    Run(w, x.data() + (tokens - 16) * 64, 16, last.data(), 1);
    for (size_t i = 0; i < 16 * kOut; ++i) {
      EXPECT_EQ(last[i], whole[(tokens - 16) * kOut + i]) << tokens;
    }
  }
}

// Of rows so long that a cache holds the inputs of 35 tokens: the last block
// of them is whole, has one token, an even or an odd number.
TEST_P(Int8MatmulTest, LongRowsMeetTokensInBlocks) {
  constexpr size_t kOut = 6;
  for (const WeightFormat format : Int8Formats()) {
    const size_t in = RowOf(format, 5120);
    const PackedMatrix w = RandomMatrix(format, kOut, in, random_);
    const GuardedArray<float> x = random_.Array(73 * in);
    Check(w, x, 73, "two blocks and three tokens");
    GuardedArray<float> whole(73 * kOut);
    Run(w, x.data(), 73, whole.data(), 1);
    for (const size_t tokens : {34, 35, 36, 37, 38, 70, 71}) {
      GuardedArray<float> y(tokens * kOut), expected(tokens * kOut);
      Run(w, x.data(), tokens, y.data(), 2);
      std::copy_n(whole.data(), tokens * kOut, expected.data());
      EXPECT_TRUE(SameBits(expected, y))
          << WeightFormatName(format) << " x " << tokens;
    }
  }
}

TEST_P(Int8MatmulTest, StridesLeaveTheGapsAlone) {
  for (const WeightFormat format : Int8Formats()) {
    const size_t in = RowOf(format, 64);
    const PackedMatrix w = RandomMatrix(format, 6, in, random_);
    GuardedArray<float> x(in + 5 + in), y(9 + 6), one(6);
    for (size_t t = 0; t < 2; ++t) {
      for (size_t i = 0; i < in; ++i) x[t * (in + 5) + i] = random_.Signed();
    }
    ops().matmul({.weight = w.view,
                  .x = x.data(),
                  .y = y.data(),
                  .tokens = 2,
                  .x_stride = in + 5,
                  .y_stride = 9,
                  .input = MatmulInput::kInt8},
                 Pool(2));
    Run(w, x.data() + in + 5, 1, one.data(), 1);
    for (size_t o = 0; o < 6; ++o) EXPECT_EQ(one[o], y[9 + o]);
    for (size_t o = 6; o < 9; ++o) EXPECT_TRUE(std::isnan(y[o]));
  }
}

// Of several formats and shapes, and more of them than are prepared together.
TEST_P(Int8MatmulTest, SeveralAtOnceHaveTheBitsOfEach) {
  for (const size_t tokens : {1, 3, 8, 9}) {
    std::vector<PackedMatrix> weights;
    std::vector<GuardedArray<float>> xs, ys;
    for (size_t i = 0; i < 4 * std::size(kWeightFormats); ++i) {
      const WeightFormat format = kWeightFormats[i % std::size(kWeightFormats)];
      const size_t in = RowOf(format, 640 * (1 + i % 2)), out = 1 + 7 * (i % 5);
      weights.push_back(RandomMatrix(format, out, in, random_));
      xs.push_back(random_.Array(tokens * in));
      ys.emplace_back(tokens * out);
    }
    std::vector<MatmulArgs> calls;
    for (size_t i = 0; i < weights.size(); ++i) {
      calls.push_back({.weight = weights[i].view,
                       .x = xs[i].data(),
                       .y = ys[i].data(),
                       .tokens = tokens,
                       .input = MatmulInput::kInt8});
    }
    for (const size_t threads : {1, 3}) {
      for (GuardedArray<float>& y : ys) y.Poison();
      ops().matmuls(std::span<const MatmulArgs>(calls), Pool(threads));
      for (size_t i = 0; i < calls.size(); ++i) {
        GuardedArray<float> alone(ys[i].size());
        Run(weights[i], xs[i].data(), tokens, alone.data(), 1);
        EXPECT_TRUE(SameBits(alone, ys[i]))
            << WeightFormatName(weights[i].view.format) << " x " << tokens;
      }
    }
  }
}

TEST_P(Int8MatmulTest, WhatIsNotFiniteIsSeenInItsTokenOnly) {
  for (const WeightFormat format : Int8Formats()) {
    const size_t in = RowOf(format, 288);
    const PackedMatrix w = RandomMatrix(format, 5, in, random_);
    for (const float bad : {std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      for (const size_t tokens : {size_t{3}, kManyTokens + 1}) {
        GuardedArray<float> x = random_.Array(tokens * in);
        x[in + 37] = bad;
        GuardedArray<float> y(tokens * 5);
        Run(w, x.data(), tokens, y.data(), 2);
        for (size_t i = 0; i < tokens * 5; ++i) {
          EXPECT_EQ(i / 5 == 1, std::isnan(y[i])) << WeightFormatName(format);
        }
      }
    }
    GuardedArray<float> zeros(in), y(5);
    for (float& value : zeros) value = 0;
    Run(w, zeros.data(), 1, y.data(), 1);
    for (const float value : y) EXPECT_EQ(0.0f, value);
  }
}

TEST_P(Int8MatmulTest, BrokenScalesOfWeightsAreSeen) {
  // An infinite f16, and the NaN of e8m0.
  for (const WeightFormat format : Int8Formats()) {
    PackedMatrix w = RandomMatrix(format, 4, RowOf(format, 256), random_);
    if (format == WeightFormat::kFp4Row32) {
      w.scales[1] = 255;
    } else if (format == WeightFormat::kMXFP4) {
      w.data[17] = 255;
    } else {
      const size_t at = format == WeightFormat::kQ2_K ? 80 : 0;
      w.data[at] = 0;
      w.data[at + 1] = 0x7c;
    }
    const GuardedArray<float> x = random_.Array(w.view.cols);
    GuardedArray<float> y(4);
    Run(w, x.data(), 1, y.data(), 1);
    EXPECT_FALSE(std::isfinite(y[0])) << WeightFormatName(format);
    EXPECT_TRUE(std::isfinite(y[1])) << WeightFormatName(format);
  }
}

}  // namespace
}  // namespace ecphory
