#include "ops/rope.h"

#include "ops/testing.h"

namespace ecphory {
namespace {

class RopeTest : public OpTest {};
ECPHORY_INSTANTIATE_OP_TEST(RopeTest);

std::vector<float> InverseFrequencies(size_t pairs) {
  std::vector<float> f(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    f[i] = static_cast<float>(std::pow(
        10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return f;
}

TEST_P(RopeTest, RotatesAdjacentPairsOfTheTail) {
  const std::vector<int64_t> positions = {0, 1, 127, 65535, 1048575};
  Random random(14);
  for (const size_t rope_dim : {2, 6, 8, 16, 34, 64}) {
    const std::vector<float> inv_freq = InverseFrequencies(rope_dim / 2);
    for (const size_t dim : {rope_dim, rope_dim + 1, rope_dim + 64}) {
      for (const size_t heads : {1, 3, 4}) {
        for (const bool inverse : {false, true}) {
          GuardedArray<float> x = random.Array(positions.size() * heads * dim);
          const std::vector<float> before = x.Copy();
          RopeArgs args{.x = x.data(),
                        .positions = positions.data(),
                        .inv_freq = inv_freq.data(),
                        .tokens = positions.size(),
                        .heads = heads,
                        .dim = dim,
                        .rope_dim = rope_dim,
                        .inverse = inverse};
          ops().rope(args, Pool(heads == 4 ? 1 : heads));
          GuardedArray<float> rounded(before.size());
          std::copy(before.begin(), before.end(), rounded.begin());
          args.x = rounded.data();
          args.round_bf16 = true;
          ops().rope(args, Pool(2));
          // What is not rotated stays as it was.
          std::vector<float> expected_bits = RoundedToBf16(x);
          for (size_t i = 0; i < before.size(); ++i) {
            if (i % dim < dim - rope_dim) expected_bits[i] = before[i];
          }
          EXPECT_TRUE(SameBits(expected_bits, rounded));
          std::vector<Expected> expected(before.size());
          for (size_t r = 0; r < positions.size() * heads; ++r) {
            const size_t tail = r * dim + dim - rope_dim;
            for (size_t i = r * dim; i < tail; ++i) expected[i].Add(before[i]);
            for (size_t i = 0; i < rope_dim / 2; ++i) {
              const float position = static_cast<float>(positions[r / heads]);
              const double angle = position * inv_freq[i];
              const double sine = std::sin(inverse ? -angle : angle);
              const double re = before[tail + 2 * i];
              const double im = before[tail + 2 * i + 1];
              expected[tail + 2 * i].Add(re * std::cos(angle));
              expected[tail + 2 * i].Add(-im * sine);
              expected[tail + 2 * i + 1].Add(re * sine);
              expected[tail + 2 * i + 1].Add(im * std::cos(angle));
            }
          }
          // Relative to the pair's length: sine and cosine err absolutely.
          for (size_t r = 0; r < positions.size() * heads; ++r) {
            for (size_t i = r * dim; i < (r + 1) * dim; ++i) {
              const bool rotated = i >= r * dim + dim - rope_dim;
              if (!rotated) {
                EXPECT_EQ(before[i], x[i]);
                continue;
              }
              EXPECT_NEAR(expected[i].value, x[i], is_ref() ? 1e-7 : 4e-7)
                  << "position " << positions[r / heads];
            }
          }
        }
      }
    }
  }
}

// Many tokens and heads at once are what they are one by one.
TEST_P(RopeTest, ManyTokens) {
  constexpr size_t kTokens = 600, kHeads = 13, kDim = 35, kRopeDim = 34;
  const std::vector<float> inv_freq = InverseFrequencies(kRopeDim / 2);
  std::vector<int64_t> positions(kTokens);
  for (size_t t = 0; t < kTokens; ++t) {
    positions[t] = static_cast<int64_t>(t * t);
  }
  Random random(15);
  GuardedArray<float> x = random.Array(kTokens * kHeads * kDim);
  GuardedArray<float> expected(x.size());
  std::copy(x.begin(), x.end(), expected.begin());
  RopeArgs args{.inv_freq = inv_freq.data(),
                .tokens = 1,
                .heads = kHeads,
                .dim = kDim,
                .rope_dim = kRopeDim};
  for (size_t t = 0; t < kTokens; ++t) {
    args.x = expected.data() + t * kHeads * kDim;
    args.positions = &positions[t];
    ops().rope(args, Pool(1));
  }
  args.x = x.data();
  args.positions = positions.data();
  args.tokens = kTokens;
  ops().rope(args, Pool(2));
  EXPECT_TRUE(SameBits(expected, x));
}

TEST_P(RopeTest, LiteralQuarterTurn) {
  const int64_t position = 1;
  const GuardedArray<float> inv_freq = {1.57079637f, 3.14159274f};
  GuardedArray<float> x = {7, 1, 2, 3, 4};
  RopeArgs args{.x = x.data(),
                .positions = &position,
                .inv_freq = inv_freq.data(),
                .tokens = 1,
                .heads = 1,
                .dim = 5,
                .rope_dim = 4};
  ops().rope(args, Pool(1));
  EXPECT_EQ(7.0f, x[0]);
  EXPECT_NEAR(-2, x[1], 1e-6);
  EXPECT_NEAR(1, x[2], 1e-6);
  EXPECT_NEAR(-3, x[3], 1e-6);
  EXPECT_NEAR(-4, x[4], 1e-6);
  args.inverse = true;
  ops().rope(args, Pool(1));
  for (const int i : {1, 2, 3, 4}) {
    EXPECT_NEAR(i, x[static_cast<size_t>(i)], 1e-6);
  }
}

TEST_P(RopeTest, PositionZeroChangesNothing) {
  const int64_t position = 0;
  const std::vector<float> inv_freq = InverseFrequencies(16);
  Random random(15);
  GuardedArray<float> x = random.Array(2 * 32);
  const std::vector<float> before = x.Copy();
  for (const bool inverse : {false, true}) {
    ops().rope({.x = x.data(),
                .positions = &position,
                .inv_freq = inv_freq.data(),
                .tokens = 1,
                .heads = 2,
                .dim = 32,
                .rope_dim = 32,
                .inverse = inverse},
               Pool(1));
    EXPECT_EQ(before, x.Copy());
  }
}

}  // namespace
}  // namespace ecphory
