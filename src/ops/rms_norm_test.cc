#include "ops/rms_norm.h"

#include "ops/testing.h"

namespace ecphory {
namespace {

class RmsNormTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(RmsNormTest);

std::vector<Expected> ExpectedNorm(const float* x, const float* weight,
                                   size_t rows, size_t dim, double eps) {
  std::vector<Expected> y(rows * dim);
  for (size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) {
      squares += static_cast<double>(x[r * dim + i]) * x[r * dim + i];
    }
    const double rms = std::sqrt(squares / static_cast<double>(dim) + eps);
    for (size_t i = 0; i < dim; ++i) {
      const double w = weight != nullptr ? weight[i] : 1;
      y[r * dim + i].Add(w * x[r * dim + i] / rms);
    }
  }
  return y;
}

TEST_P(RmsNormTest, MatchesTheFormula) {
  Random random(3);
  for (const size_t dim : kDims) {
    for (const size_t rows : {1, 2, 5}) {
      const GuardedArray<float> x = random.Array(rows * dim, 3);
      const GuardedArray<float> weight = random.Array(dim);
      const float* const weights[] = {weight.data(), nullptr};
      for (const float* w : weights) {
        const auto expected = ExpectedNorm(x.data(), w, rows, dim, 1e-6f);
        for (const size_t threads : {1, 2, 3}) {
          GuardedArray<float> y(rows * dim);
          RmsNormArgs args{.x = x.data(),
                           .weight = w,
                           .y = y.data(),
                           .rows = rows,
                           .dim = dim,
                           .eps = 1e-6f};
          ops().rms_norm(args, Pool(threads));
          EXPECT_TRUE(AllClose(expected, y.data(), SumBound(dim)))
              << rows << " x " << dim;
          GuardedArray<float> in_place(rows * dim);
          std::copy(x.begin(), x.end(), in_place.begin());
          args.x = args.y = in_place.data();
          ops().rms_norm(args, Pool(threads));
          EXPECT_TRUE(SameBits(y, in_place)) << rows << " x " << dim;
          GuardedArray<float> rounded(rows * dim);
          args.x = x.data(), args.y = rounded.data();
          args.round_bf16 = true;
          ops().rms_norm(args, Pool(threads));
          EXPECT_TRUE(SameBits(RoundedToBf16(y), rounded))
              << rows << " x " << dim;
        }
      }
    }
  }
}

TEST_P(RmsNormTest, LiteralCase) {
  const GuardedArray<float> x = {3, 4, 0, 0};  // mean square 25/4
  const GuardedArray<float> weight = {1, 2, 3, 4};
  GuardedArray<float> y(4);
  ops().rms_norm({.x = x.data(),
                  .weight = weight.data(),
                  .y = y.data(),
                  .rows = 1,
                  .dim = 4,
                  .eps = 0},
                 Pool(1));
  EXPECT_NEAR(1.2f, y[0], 3e-7);
  EXPECT_NEAR(3.2f, y[1], 6e-7);
  EXPECT_EQ(0.0f, y[2]);
}

// The release's eps is 1e-20: it must survive beside tiny squares, and a row of
// zeros must stay zeros.
TEST_P(RmsNormTest, TinyEpsilonCounts) {
  const GuardedArray<float> x = {1e-10f, 1e-10f, 0, 0};
  GuardedArray<float> y(4);
  ops().rms_norm(
      {.x = x.data(), .y = y.data(), .rows = 2, .dim = 2, .eps = 1e-20f},
      Pool(1));
  EXPECT_NEAR(1 / std::sqrt(2.0), y[0], 1e-6);
  EXPECT_EQ(0.0f, y[2]);
  EXPECT_EQ(0.0f, y[3]);
}

}  // namespace
}  // namespace ecphory
