#include "ops/matmul.h"

#include "ops/testing.h"
#include "ops/weights_testing.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

constexpr char kFewTokensOnly[] =
    "CUDA keeps a token's bits among calls of up to 8 tokens only";

class MatmulTest : public OpTest {
 protected:
  // `y` is what the call has given; rounding it is all that round_bf16 does.
  void CheckRounded(MatmulArgs args, const GuardedArray<float>& y) {
    GuardedArray<float> rounded(y.size());
    args.y = rounded.data();
    args.round_bf16 = true;
    ops().matmul(args, Pool(2));
    EXPECT_TRUE(SameBits(RoundedToBf16(y), rounded))
        << WeightFormatName(args.weight.format) << " [" << args.weight.rows
        << ", " << args.weight.cols << "] x " << args.tokens;
  }
};
ECPHORY_INSTANTIATE_OP_TEST(MatmulTest);

std::vector<Expected> ExpectedProduct(const PackedMatrix& w, const float* x,
                                      size_t tokens, size_t x_stride) {
  const size_t out = w.view.rows;
  const size_t in = w.view.cols;
  std::vector<Expected> y(tokens * out);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) {
        y[t * out + o].Add(static_cast<double>(w.values[o * in + i]) *
                           x[t * x_stride + i]);
      }
    }
  }
  return y;
}

class MatmulShapes : public MatmulTest {
 protected:
  void Check(WeightFormat format, size_t out, size_t in, size_t tokens,
             size_t first_row) {
    const PackedMatrix w = RandomMatrix(format, out, in, random_, first_row);
    const GuardedArray<float> x = random_.Array(tokens * in);
    const auto expected = ExpectedProduct(w, x.data(), tokens, in);
    for (const size_t threads : {1, 2, 3}) {
      GuardedArray<float> y(tokens * out);
      const MatmulArgs args{
          .weight = w.view, .x = x.data(), .y = y.data(), .tokens = tokens};
      ops().matmul(args, Pool(threads));
      EXPECT_TRUE(AllClose(expected, y.data(), SumBound(in)))
          << WeightFormatName(format) << " [" << out << ", " << in << "] x "
          << tokens << ", first row " << first_row << ", " << threads
          << " threads";
      if (threads == 2) CheckRounded(args, y);
    }
  }

  // One token is a kernel of its own.
  void CheckFewTokens(WeightFormat format, size_t out, size_t in,
                      size_t first_row) {
    Check(format, out, in, 1, first_row);
    Check(format, out, in, 3, first_row);
  }

  // Few tokens have the bits of each by itself; one that stands out by far does
  // not spoil others, nor does one that is not finite.
  void CheckLongRows(size_t in) {
    constexpr size_t kToken = 3;
    const float inf = std::numeric_limits<float>::infinity();
    for (const WeightFormat format :
         {WeightFormat::kQ8_0, WeightFormat::kFp8Tile32,
          WeightFormat::kFp4Row32}) {
      // CUDA adds up in another order where there are more tokens than that.
      const size_t tokens = is_cuda() && format != WeightFormat::kQ8_0 ? 4 : 8;
      for (const size_t out : {1, 67, 300, 6001}) {
        // The last: more pieces of a GPU's warp than are on their way at once.
        if (out > 300 && in != 1280) continue;
        const PackedMatrix w = RandomMatrix(format, out, in, random_, 3);
        GuardedArray<float> x = random_.Array(tokens * in);
        // One that stands out by far, and one that is not finite.
        x[2 * in + 300] *= 0x1p10f;
        for (const size_t at : {size_t{140}, in - 1}) {
          x[kToken * in + at] = inf;
          const auto expected = ExpectedProduct(w, x.data(), tokens, in);
          std::vector<float> whole;
          for (const size_t chunk : {tokens, size_t{1}, size_t{2}, size_t{3}}) {
            GuardedArray<float> y(tokens * out);
            for (size_t t = 0; t < tokens; t += chunk) {
              ops().matmul({.weight = w.view,
                            .x = x.data() + t * in,
                            .y = y.data() + t * out,
                            .tokens = std::min(chunk, tokens - t)},
                           Pool(2));
            }
            // A NaN is any.
            for (size_t r = 0; r < out; ++r) {
              float& result = y[kToken * out + r];
              if (std::isnan(result)) {
                result = std::numeric_limits<float>::quiet_NaN();
              }
            }
            if (chunk == tokens) whole = y.Copy();
            EXPECT_TRUE(SameBits(whole, y))
                << WeightFormatName(format) << ", " << in
                << " columns, chunks of " << chunk;
          }
          for (size_t t = 0; t < tokens; ++t) {
            if (t == kToken) continue;
            EXPECT_TRUE(AllClose(
                {expected.begin() + t * out, expected.begin() + (t + 1) * out},
                whole.data() + t * out, SumBound(in)))
                << WeightFormatName(format) << ", token " << t;
          }
          for (size_t r = 0; r < out; ++r) {
            const float product = w.values[r * in + at] * inf;
            EXPECT_TRUE(std::isnan(product)
                            ? std::isnan(whole[kToken * out + r])
                            : whole[kToken * out + r] == product)
                << WeightFormatName(format) << ", row " << r;
          }
          x[kToken * in + at] = 1;
        }
      }
    }
  }

  Random random_{4};
};
ECPHORY_INSTANTIATE_OP_TEST(MatmulShapes);

TEST_P(MatmulShapes, EveryFormatAndLength) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t in : kDims) {
      if (HasRowsOf(format, in)) CheckFewTokens(format, 5, in, 0);
    }
    for (const size_t in : {64, 96, 160, 224, 768}) {
      if (HasRowsOf(format, in)) CheckFewTokens(format, 5, in, 0);
    }
  }
}

TEST_P(MatmulShapes, EveryFormatAndRowCount) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t out : {1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 67, 127}) {
      CheckFewTokens(format, out, RowOf(format, 64), 0);
    }
  }
}

TEST_P(MatmulShapes, EveryFormatAndTokenCount) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t tokens :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 65}) {
      Check(format, 19, RowOf(format, 96), tokens, 0);
    }
  }
}

// More than any kernel's tile, and a part of one.
TEST_P(MatmulShapes, EveryFormatAndManyTokens) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t tokens : {9, 40, 64, 65, 130, 300}) {
      Check(format, 150, RowOf(format, 640), tokens, 20);
    }
  }
}

// Several tiles of rows and of tokens, and several loads of scales, of either
// kind of input.
TEST_P(MatmulShapes, ManyTiles) {
  constexpr size_t kOut = 530, kTokens = 270;
  for (const size_t in : {352, 768}) {
    for (const WeightFormat format :
         {WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kQ8_0,
          WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
          WeightFormat::kFp4Row32}) {
      const PackedMatrix w = RandomMatrix(format, kOut, in, random_);
      GuardedArray<float> x = random_.Array(kTokens * in);
      for (float& value : x) value = RoundToBF16(value);
      const auto expected = ExpectedProduct(w, x.data(), kTokens, in);
      for (const auto input : {MatmulInput::kF32, MatmulInput::kBF16}) {
        GuardedArray<float> y(kTokens * kOut);
        const MatmulArgs args{.weight = w.view,
                              .x = x.data(),
                              .y = y.data(),
                              .tokens = kTokens,
                              .input = input};
        ops().matmul(args, Pool(2));
        EXPECT_TRUE(AllClose(expected, y.data(), SumBound(in)))
            << WeightFormatName(format) << ", " << in << " columns";
        CheckRounded(args, y);
      }
    }
  }
}

// Columns that blocks share, in shares of several pieces.
TEST_P(MatmulShapes, LongRowsOfTensOfTokens) {
  for (const WeightFormat format :
       {WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32}) {
    for (const size_t in : {2304, 2336}) {
      for (const size_t tokens : {9, 33}) Check(format, 270, in, tokens, 0);
    }
  }
}

// As many rows as a vocabulary has.
TEST_P(MatmulShapes, VeryManyRows) {
  constexpr size_t kOut = 34001, kIn = 96;
  for (const WeightFormat format : {WeightFormat::kF16, WeightFormat::kBF16}) {
    for (const size_t tokens : {9, 17, 32, 33}) {
      Check(format, kOut, kIn, tokens, 3);
    }
  }
}

// Scales as far apart, or as large or small, as a format has them.
TEST_P(MatmulShapes, EveryScale) {
  constexpr size_t kOut = 40, kIn = 256;
  const struct {
    int least, most;
    float x;
  } cases[] = {{97, 157, 1}, {1, 8, 0x1p60f}, {228, 232, 0x1p-60f}};
  for (const WeightFormat format :
       {WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    for (const auto& c : cases) {
      PackedMatrix w = RandomMatrix(format, kOut, kIn, random_);
      for (uint8_t& scale : w.scales) {
        scale =
            static_cast<uint8_t>(c.least + random_.Below(c.most - c.least + 1));
      }
      for (size_t r = 0; r < kOut; ++r) {
        DequantizeRow(w.view, r, w.values.data() + r * kIn);
      }
      for (const size_t tokens : {3, 40, 130}) {
        const GuardedArray<float> x = random_.Array(tokens * kIn, c.x);
        GuardedArray<float> y(tokens * kOut);
        const MatmulArgs args{
            .weight = w.view, .x = x.data(), .y = y.data(), .tokens = tokens};
        ops().matmul(args, Pool(2));
        EXPECT_TRUE(AllClose(ExpectedProduct(w, x.data(), tokens, kIn),
                             y.data(), SumBound(kIn)))
            << WeightFormatName(format) << ", scales from 2^" << c.least - 127
            << " x " << tokens;
        CheckRounded(args, y);
      }
    }
  }
}

// Rows that all warps of a GPU's block share, of fewer and of more pieces than
// it has warps.
TEST_P(MatmulShapes, LongRowsOfFewTokens) {
  CheckLongRows(2560);
  if (!is_cuda()) return;
  for (const size_t in : {896, 1280, 2304, 8192}) CheckLongRows(in);
}

// Scales of 2^-127 and such as are no numbers, here and there.
TEST_P(MatmulShapes, ScalesThatAreNoNormalFloats) {
  constexpr size_t kOut = 40, kIn = 256;
  for (const WeightFormat format :
       {WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    for (const uint8_t code : {0, 255}) {
      PackedMatrix w = RandomMatrix(format, kOut, kIn, random_);
      for (uint8_t& scale : w.scales) scale = 1 + scale % 4;
      w.scales[w.scales.size() - 3] = code;
      for (size_t r = 0; r < kOut; ++r) {
        DequantizeRow(w.view, r, w.values.data() + r * kIn);
      }
      for (const size_t tokens : {1, 3, 40}) {
        const GuardedArray<float> x = random_.Array(tokens * kIn, 0x1p60f);
        GuardedArray<float> y(tokens * kOut);
        ops().matmul(
            {.weight = w.view, .x = x.data(), .y = y.data(), .tokens = tokens},
            Pool(2));
        const auto expected = ExpectedProduct(w, x.data(), tokens, kIn);
        for (size_t i = 0; i < y.size(); ++i) {
          bool number = true;
          for (size_t k = 0; k < kIn; ++k) {
            number &= !std::isnan(w.values[i % kOut * kIn + k]);
          }
          EXPECT_EQ(number, !std::isnan(y[i])) << WeightFormatName(format);
          if (!number) continue;
          EXPECT_TRUE(AllClose({expected[i]}, &y[i], SumBound(kIn)))
              << WeightFormatName(format) << ", scale " << int{code} << " x "
              << tokens;
        }
      }
    }
  }
}

// What products through integers (ops/cpu/digits-inl.h) must not notice: values
// that stand out by far, of which there is one in a row, one in a block, or
// whole blocks; blocks of zeros; rows of the largest and of tiny values.
TEST_P(MatmulShapes, InputsOfAllSizes) {
  if (is_cuda()) GTEST_SKIP() << "CUDA: larger errors (docs/cuda.md)";
  constexpr size_t kOut = 23, kIn = 1280, kTokens = 66;
  const auto fill = [&](size_t kind, float* x) {
    const auto size = [&](size_t i) {
      switch (kind) {
        case 0: return i == 700 ? 1e4f : 1.0f;
        case 1: return i % 32 == 5 ? 1e3f : 1.0f;
        case 2: return i / 256 % 2 == 0 ? 1e6f : 1.0f;
        case 3: return i / 64 % 3 == 0 ? 0.0f : 1.0f;
        case 4: return 0x1p120f;
        case 5: return 0x1p-60f;
        case 6: return 0x1p-100f;  // smaller than what has digits
        case 7: return i < 1000 ? 1.0f : 0x1p-100f;
        default: return std::exp2(random_.Uniform(-20, 20));
      }
    };
    for (size_t i = 0; i < kIn; ++i) x[i] = size(i) * random_.Signed();
  };
  for (const WeightFormat format : kWeightFormats) {
    const size_t in = RowOf(format, kIn);
    const PackedMatrix w = RandomMatrix(format, kOut, in, random_);
    GuardedArray<float> x(kTokens * in);
    for (size_t t = 0; t < kTokens; ++t) fill(t % 9, x.data() + t * in);
    const auto expected = ExpectedProduct(w, x.data(), kTokens, in);
    GuardedArray<float> one(kTokens * kOut), many(kTokens * kOut);
    ops().matmul(
        {.weight = w.view, .x = x.data(), .y = many.data(), .tokens = kTokens},
        Pool(2));
    EXPECT_TRUE(AllClose(expected, many.data(), SumBound(in)))
        << WeightFormatName(format);
    for (size_t t = 0; t < kTokens; ++t) {
      ops().matmul({.weight = w.view,
                    .x = x.data() + t * in,
                    .y = one.data() + t * kOut,
                    .tokens = 1},
                   Pool(1));
    }
    EXPECT_TRUE(AllClose(expected, one.data(), SumBound(in)))
        << WeightFormatName(format);
    EXPECT_TRUE(is_cuda() || SameBits(one, many)) << WeightFormatName(format);
  }
}

// Sums of such inputs would overflow where their products with the weights are
// small.
TEST_P(MatmulShapes, LargestInputsTimesSmallWeights) {
  if (is_cuda()) GTEST_SKIP() << "CUDA: larger errors (docs/cuda.md)";
  constexpr size_t kOut = 9, kIn = 1280;
  for (const WeightFormat format :
       {WeightFormat::kQ4_K, WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS}) {
    PackedMatrix w = RandomMatrix(format, kOut, kIn, random_);
    const size_t block_bytes = w.view.row_bytes() / (kIn / 256);
    const size_t at = format == WeightFormat::kQ2_K ? 80 : 0;
    for (size_t b = 0; b < kOut * kIn / 256; ++b) {
      const uint16_t small = F32ToF16(0x1p-20f);
      uint8_t* const d = w.data.data() + b * block_bytes + at;
      std::memcpy(d, &small, sizeof(small));
      if (format == WeightFormat::kIQ2_XXS) continue;
      std::memcpy(d + 2, &small, sizeof(small));
    }
    for (size_t r = 0; r < kOut; ++r) {
      DequantizeRow(w.view, r, w.values.data() + r * kIn);
    }
    for (const float least : {0.0f, -1.0f}) {
      for (const size_t tokens : {1, 3, 20}) {
        GuardedArray<float> x(tokens * kIn);
        for (float& value : x) {
          value = std::numeric_limits<float>::max() * random_.Uniform(least, 1);
        }
        GuardedArray<float> y(tokens * kOut);
        ops().matmul(
            {.weight = w.view, .x = x.data(), .y = y.data(), .tokens = tokens},
            Pool(2));
        EXPECT_TRUE(AllClose(ExpectedProduct(w, x.data(), tokens, kIn),
                             y.data(), SumBound(kIn)))
            << WeightFormatName(format) << " x " << tokens;
      }
    }
  }
}

// One value is not finite: the products are, whose weight for it is zero
// excepted, what it makes of them, and those of other tokens are not touched.
TEST_P(MatmulShapes, WhatIsNotFiniteIsSeenInItsTokenOnly) {
  constexpr size_t kOut = 9;
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const WeightFormat format : kWeightFormats) {
    const size_t in = RowOf(format, 288);
    const PackedMatrix w = RandomMatrix(format, kOut, in, random_);
    for (const float bad : {inf, -inf, nan}) {
      for (const size_t tokens : {1, 3, 70}) {
        GuardedArray<float> x = random_.Array(tokens * in);
        const size_t token = tokens / 2;
        x[token * in + 37] = bad;
        GuardedArray<float> y(tokens * kOut);
        ops().matmul(
            {.weight = w.view, .x = x.data(), .y = y.data(), .tokens = tokens},
            Pool(2));
        for (size_t i = 0; i < tokens * kOut; ++i) {
          const float weight = w.values[i % kOut * in + 37];
          if (i / kOut != token) {
            EXPECT_TRUE(std::isfinite(y[i])) << WeightFormatName(format);
          } else if (std::isnan(weight * bad)) {
            EXPECT_TRUE(std::isnan(y[i])) << WeightFormatName(format);
          } else {
            EXPECT_EQ(weight * bad, y[i]) << WeightFormatName(format);
          }
        }
      }
    }
  }
}

// Of one call: inputs that every kernel takes, and inputs that are larger or
// smaller than it can.
TEST_P(MatmulShapes, InputsOfEveryMagnitude) {
  if (is_cuda()) GTEST_SKIP() << "denormals";
  constexpr size_t kOut = 40, kIn = 256, kTokens = 36;
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32}) {
    const PackedMatrix w = RandomMatrix(format, kOut, kIn, random_);
    for (const size_t tokens : {size_t{1}, size_t{5}, kTokens}) {
      GuardedArray<float> x = random_.Array(tokens * kIn);
      for (size_t t = 0; t < tokens; ++t) {
        const int exponent = static_cast<int>(random_.Below(260)) - 140;
        for (size_t i = 0; i < kIn; ++i) {
          x[t * kIn + i] = RoundToBF16(std::ldexp(x[t * kIn + i], exponent));
        }
      }
      for (const auto input : {MatmulInput::kF32, MatmulInput::kBF16}) {
        auto expected = ExpectedProduct(w, x.data(), tokens, kIn);
        // Half a denormal for each sum, or all of them in all terms.
        const double lost =
            kIn * (input == MatmulInput::kF32 ? 0x1p-149 : 0x1p-123);
        for (Expected& e : expected) e.magnitude += lost / SumBound(kIn);
        GuardedArray<float> y(tokens * kOut);
        ops().matmul({.weight = w.view,
                      .x = x.data(),
                      .y = y.data(),
                      .tokens = tokens,
                      .input = input},
                     Pool(2));
        EXPECT_TRUE(AllClose(expected, y.data(), SumBound(kIn)))
            << WeightFormatName(format) << " x " << tokens;
      }
    }
  }
}

// Infinities and NaNs of an input are seen in its results only, those of a row
// in its own only.
TEST_P(MatmulShapes, WhatIsNotFiniteIsSeenWhereItIs) {
  constexpr size_t kOut = 40, kIn = 96, kTokens = 20;
  constexpr size_t kRow = 33, kToken = 3;
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32}) {
    for (const float value : {std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
      PackedMatrix w = RandomMatrix(format, kOut, kIn, random_);
      uint8_t* const row = w.data.data() + kRow * w.view.row_bytes();
      switch (format) {
        case WeightFormat::kBF16: row[10] = 0xc0, row[11] = 0x7f; break;
        case WeightFormat::kMXFP4: row[17] = 0xff; break;
        case WeightFormat::kFp8Tile32: row[40] = 0xff; break;
        default: w.scales[kRow * (kIn / 32) + 2] = 0xff;
      }
      for (const size_t tokens : {kTokens, kToken + 1}) {
        GuardedArray<float> x = random_.Array(tokens * kIn);
        for (float& v : x) v = RoundToBF16(v + std::copysign(0.01f, v));
        x[kToken * kIn + 50] = value;
        for (const auto input : {MatmulInput::kF32, MatmulInput::kBF16}) {
          GuardedArray<float> y(tokens * kOut);
          ops().matmul({.weight = w.view,
                        .x = x.data(),
                        .y = y.data(),
                        .tokens = tokens,
                        .input = input},
                       Pool(2));
          for (size_t i = 0; i < y.size(); ++i) {
            EXPECT_EQ(i / kOut != kToken && i % kOut != kRow,
                      std::isfinite(y[i]))
                << WeightFormatName(format) << " x " << tokens << ": " << i;
          }
        }
      }
    }
  }
}

TEST_P(MatmulShapes, ViewsKeepTheirTilePhase) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t first_row : {1, 2, 3, 20, 31, 32, 45}) {
      CheckFewTokens(format, 40, RowOf(format, 64), first_row);
    }
  }
  Check(WeightFormat::kFp8Tile32, 40, 45, 3, 20);
}

// Of several formats and shapes at once; each has strides of its own.
TEST_P(MatmulTest, SeveralAtOnce) {
  Random random(14);
  for (const size_t tokens : {1, 3, 8, 9}) {
    std::vector<PackedMatrix> weights;
    std::vector<GuardedArray<float>> xs, ys;
    std::vector<MatmulArgs> calls;
    for (size_t i = 0; i < 3 * std::size(kWeightFormats); ++i) {
      const WeightFormat format = kWeightFormats[i % std::size(kWeightFormats)];
      const size_t in = RowOf(format, 160 * (1 + i % 2)),
                   out = 1 + 23 * (i % 5);
      weights.push_back(RandomMatrix(format, out, in, random));
      xs.push_back(random.Array(tokens * (in + 4)));
      ys.emplace_back(tokens * (out + 3));
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      const Matrix& w = weights[i].view;
      calls.push_back({.weight = w,
                       .x = xs[i].data(),
                       .y = ys[i].data(),
                       .tokens = tokens,
                       .x_stride = w.cols + 4,
                       .y_stride = w.rows + 3});
    }
    for (const size_t threads : {1, 3}) {
      for (GuardedArray<float>& y : ys) y.Poison();
      ops().matmuls(std::span<const MatmulArgs>(calls), Pool(threads));
      for (size_t i = 0; i < calls.size(); ++i) {
        const Matrix& w = calls[i].weight;
        const auto expected =
            ExpectedProduct(weights[i], calls[i].x, tokens, w.cols + 4);
        for (size_t t = 0; t < tokens; ++t) {
          const std::vector<Expected> row(expected.begin() + t * w.rows,
                                          expected.begin() + (t + 1) * w.rows);
          EXPECT_TRUE(
              AllClose(row, calls[i].y + t * (w.rows + 3), SumBound(w.cols)))
              << WeightFormatName(w.format) << " x " << tokens;
        }
        if (is_cuda()) continue;
        GuardedArray<float> alone(ys[i].size());
        MatmulArgs args = calls[i];
        args.y = alone.data();
        ops().matmul(args, Pool(1));
        EXPECT_TRUE(SameBits(alone, ys[i]));
      }
    }
    std::vector<GuardedArray<float>> rounded;
    for (size_t i = 0; i < calls.size(); ++i) {
      rounded.emplace_back(ys[i].size());
      calls[i].y = rounded[i].data();
      calls[i].round_bf16 = i % 2 == 0;
    }
    ops().matmuls(std::span<const MatmulArgs>(calls), Pool(2));
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(SameBits(i % 2 == 0 ? RoundedToBf16(ys[i]) : ys[i].Copy(),
                           rounded[i]))
          << WeightFormatName(calls[i].weight.format) << " x " << tokens;
    }
  }
}

// What a thread keeps of an input serves products of that input and format
// only; and of FP8, whose rows share scales, those of the same tile.
TEST_P(MatmulTest, SeveralOfOneInput) {
  if (is_cuda()) return;
  constexpr size_t kCols = 512, kRows = 137;
  Random random(15);
  const GuardedArray<float> x[] = {random.Array(kCols), random.Array(kCols)};
  std::vector<PackedMatrix> weights;
  std::vector<GuardedArray<float>> ys;
  for (size_t i = 0; i < 4 * std::size(kWeightFormats); ++i) {
    const WeightFormat format =
        kWeightFormats[i / 2 % std::size(kWeightFormats)];
    weights.push_back(RandomMatrix(format, kRows, kCols, random));
    ys.emplace_back(kRows);
  }
  std::vector<MatmulArgs> calls;
  for (size_t i = 0; i < weights.size(); ++i) {
    calls.push_back({.weight = weights[i].view,
                     .x = x[i / 5 % 2].data(),
                     .y = ys[i].data(),
                     .tokens = 1});
  }
  for (const size_t threads : {1, 3}) {
    for (GuardedArray<float>& y : ys) y.Poison();
    ops().matmuls(std::span<const MatmulArgs>(calls), Pool(threads));
    for (size_t i = 0; i < calls.size(); ++i) {
      GuardedArray<float> alone(kRows);
      MatmulArgs args = calls[i];
      args.y = alone.data();
      ops().matmul(args, Pool(1));
      EXPECT_TRUE(SameBits(alone, ys[i]))
          << WeightFormatName(args.weight.format) << ", product " << i;
    }
  }
}

TEST_P(MatmulTest, LiteralCase) {
  const GuardedArray<float> weights = {1, 2, 3, 4, 5, 6};
  const Matrix w{.format = WeightFormat::kF32,
                 .rows = 2,
                 .cols = 3,
                 .data = reinterpret_cast<const uint8_t*>(weights.data())};
  const GuardedArray<float> x = {1, 10, 100, -1, 0, 1};
  GuardedArray<float> y(4);
  ops().matmul({.weight = w, .x = x.data(), .y = y.data(), .tokens = 2},
               Pool(1));
  EXPECT_EQ((std::vector<float>{321, 654, 2, 2}), y.Copy());
}

TEST_P(MatmulTest, StridesLeaveTheGapsAlone) {
  constexpr size_t kOut = 19;
  constexpr size_t kTokens = 5;
  constexpr size_t kYStride = kOut + 3;
  Random random(5);
  for (const WeightFormat format : kWeightFormats) {
    const size_t in = RowOf(format, 64);
    const size_t x_stride = in + 5;
    const PackedMatrix w = RandomMatrix(format, kOut, in, random);
    // The last row of either ends at the guard page.
    GuardedArray<float> x((kTokens - 1) * x_stride + in);
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t i = 0; i < in; ++i) x[t * x_stride + i] = random.Signed();
    }
    GuardedArray<float> y((kTokens - 1) * kYStride + kOut);
    const MatmulArgs args{.weight = w.view,
                          .x = x.data(),
                          .y = y.data(),
                          .tokens = kTokens,
                          .x_stride = x_stride,
                          .y_stride = kYStride};
    ops().matmul(args, Pool(2));
    CheckRounded(args, y);
    const auto expected = ExpectedProduct(w, x.data(), kTokens, x_stride);
    for (size_t t = 0; t < kTokens; ++t) {
      const std::vector<Expected> row(expected.begin() + t * kOut,
                                      expected.begin() + (t + 1) * kOut);
      EXPECT_TRUE(AllClose(row, y.data() + t * kYStride, SumBound(in)))
          << WeightFormatName(format);
      for (size_t i = kOut; i < kYStride && t + 1 < kTokens; ++i) {
        EXPECT_TRUE(std::isnan(y[t * kYStride + i])) << "gap written";
      }
    }
  }
}

TEST_P(MatmulTest, ATokensBitsDependOnNothingElse) {
  constexpr size_t kOut = 67;
  // CUDA adds up in another order where there are more tokens than that.
  const size_t kTokens = is_cuda() ? 4 : 33;
  Random random(6);
  for (const WeightFormat format : kWeightFormats) {
    const size_t in = RowOf(format, 160);
    const PackedMatrix w = RandomMatrix(format, kOut, in, random);
    const GuardedArray<float> x = random.Array(kTokens * in);
    GuardedArray<float> whole(kTokens * kOut);
    ops().matmul(
        {.weight = w.view, .x = x.data(), .y = whole.data(), .tokens = kTokens},
        Pool(1));
    for (const size_t chunk : {1, 2, 3, 5, 7, 33}) {
      for (const size_t threads : {1, 2, 3}) {
        GuardedArray<float> y(kTokens * kOut);
        for (size_t t = 0; t < kTokens; t += chunk) {
          ops().matmul({.weight = w.view,
                        .x = x.data() + t * in,
                        .y = y.data() + t * kOut,
                        .tokens = std::min(chunk, kTokens - t)},
                       Pool(threads));
        }
        EXPECT_TRUE(SameBits(whole, y))
            << WeightFormatName(format) << ", chunks of " << chunk << ", "
            << threads << " threads";
      }
    }
  }
}

// Rows long enough for panels that leave the first-level cache, and tokens
// enough for several blocks of them.
TEST_P(MatmulTest, TokenCountsAroundEveryBlockGiveTheBitsOfOneToken) {
  if (is_cuda()) GTEST_SKIP() << kFewTokensOnly;
  constexpr size_t kOut = 45;
  constexpr size_t kIn = 1056;
  constexpr size_t kTokens = 513;
  Random random(7);
  const GuardedArray<float> x = random.Array(kTokens * kIn);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kQ8_0, WeightFormat::kFp8Tile32,
        WeightFormat::kFp4Row32, WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS}) {
    // Blocks of 256: as much of each row, not all.
    const size_t in = kIn / BlockValues(format) * BlockValues(format);
    const PackedMatrix w = RandomMatrix(format, kOut, in, random, 20);
    GuardedArray<float> single(kTokens * kOut);
    for (size_t t = 0; t < kTokens; ++t) {
      ops().matmul({.weight = w.view,
                    .x = x.data() + t * in,
                    .y = single.data() + t * kOut,
                    .tokens = 1},
                   Pool(1));
    }
    EXPECT_TRUE(AllClose(ExpectedProduct(w, x.data(), 7, in), single.data(),
                         SumBound(in)));
    for (const size_t tokens : {2, 5, 6, 7, 63, 128, 129, 513}) {
      GuardedArray<float> y(tokens * kOut);
      ops().matmul(
          {.weight = w.view, .x = x.data(), .y = y.data(), .tokens = tokens},
          Pool(1 + tokens % 3));
      EXPECT_TRUE(SameBits(y, single))
          << WeightFormatName(format) << " x " << tokens;
    }
  }
}

GuardedArray<float> Bf16Array(size_t size, float scale, Random& random) {
  GuardedArray<float> values = random.Array(size, scale);
  for (float& value : values) value = RoundToBF16(value);
  return values;
}

TEST_P(MatmulTest, Bf16InputsGiveTheBitsOfF32) {
  if (is_cuda()) GTEST_SKIP() << kFewTokensOnly;
  constexpr size_t kOut = 45;
  constexpr size_t kTokens = 129;
  Random random(8);
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t least : {32, 33, 1056}) {
      const size_t in = RowOf(format, least);
      const PackedMatrix w = RandomMatrix(format, kOut, in, random, 20);
      const GuardedArray<float> x = Bf16Array(kTokens * in, 1, random);
      GuardedArray<float> expected(kTokens * kOut);
      MatmulArgs args{.weight = w.view, .x = x.data(), .y = expected.data()};
      args.tokens = kTokens;
      ops().matmul(args, Pool(1));
      for (const size_t tokens : {1, 5, 6, 7, 17, 129}) {
        args.tokens = tokens;
        for (const auto input :
             {MatmulInput::kBF16, MatmulInput::kBF16InOrder}) {
          const bool any_order = input == MatmulInput::kBF16 &&
                                 orders_by_tokens() && tokens > kMaxFewTokens;
          if (any_order) continue;
          GuardedArray<float> y(tokens * kOut);
          args.input = input;
          args.y = y.data();
          ops().matmul(args, Pool(1 + tokens % 3));
          EXPECT_TRUE(SameBits(y, expected))
              << WeightFormatName(format) << ", rows of " << in << " x "
              << tokens;
        }
      }
    }
  }
}

// Where denormals count as zero, they do so for any number of tokens.
TEST_P(MatmulTest, Bf16ResultsOfDenormalsDependOnNothingElse) {
  if (is_cuda()) GTEST_SKIP() << kFewTokensOnly;
  constexpr size_t kIn = 96;
  constexpr size_t kOut = 19;
  const size_t kTokens = orders_by_tokens() ? kMaxFewTokens : 33;
  Random random(9);
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kMXFP4, WeightFormat::kFp8Tile32}) {
    const PackedMatrix w = RandomMatrix(format, kOut, kIn, random);
    for (const float scale : {0x1p-124f, 0x1p-128f}) {
      const GuardedArray<float> x = Bf16Array(kTokens * kIn, scale, random);
      GuardedArray<float> whole(kTokens * kOut);
      ops().matmul({.weight = w.view,
                    .x = x.data(),
                    .y = whole.data(),
                    .tokens = kTokens,
                    .input = MatmulInput::kBF16},
                   Pool(1));
      GuardedArray<float> y(kTokens * kOut);
      for (size_t t = 0; t < kTokens; ++t) {
        ops().matmul({.weight = w.view,
                      .x = x.data() + t * kIn,
                      .y = y.data() + t * kOut,
                      .tokens = 1,
                      .input = MatmulInput::kBF16},
                     Pool(2));
      }
      EXPECT_TRUE(SameBits(whole, y)) << WeightFormatName(format);
    }
  }
}

}  // namespace
}  // namespace ecphory
