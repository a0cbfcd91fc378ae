#include "ops/moe.h"
#include "ops/testing.h"
#include "ops/weights_testing.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

// A few experts of one shape and everything that one call takes.
struct ExpertsCase {
  ExpertsCase(WeightFormat format, size_t dim, size_t inner, size_t n_tokens,
              size_t n_experts, size_t n_topk, Random& random)
      : tokens(n_tokens),
        topk(n_topk),
        x(random.Array(n_tokens * dim, 2)),
        ids(n_tokens * n_topk),
        weights(random.Array(n_tokens * n_topk)),
        y(n_tokens * dim) {
    packed.reserve(3 * n_experts);
    for (size_t e = 0; e < n_experts; ++e) {
      packed.push_back(RandomMatrix(format, inner, dim, random));
      packed.push_back(RandomMatrix(format, inner, dim, random));
      packed.push_back(RandomMatrix(format, dim, inner, random));
      experts.push_back(
          {packed[3 * e].view, packed[3 * e + 1].view, packed[3 * e + 2].view});
    }
    // Distinct experts per token; the last expert is used by no token.
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t used = std::max<size_t>(1, n_experts - 1);
      ids[i] = static_cast<int32_t>((i / topk * 3 + i % topk) % used);
    }
    args = {.x = x.data(),
            .tokens = tokens,
            .dim = dim,
            .experts = experts.data(),
            .device_experts = experts.data(),
            .n_experts = n_experts,
            .inner = inner,
            .ids = ids.data(),
            .weights = weights.data(),
            .topk = topk,
            .y = y.data()};
  }

  size_t tokens, topk;
  GuardedArray<float> x;
  GuardedArray<int32_t> ids;
  GuardedArray<float> weights;
  GuardedArray<float> y;
  std::vector<PackedMatrix> packed;
  std::vector<Expert> experts;
  ExpertsArgs args;
};

// Token t's output in fp32 mode.
std::vector<Expected> ExpectedExperts(const ExpertsCase& c, size_t t) {
  const size_t dim = c.args.dim;
  const double limit = c.args.swiglu_limit;
  std::vector<Expected> y(dim);
  for (size_t j = 0; j < c.topk; ++j) {
    const size_t e = static_cast<size_t>(c.ids[t * c.topk + j]);
    const PackedMatrix& w1 = c.packed[3 * e];
    const PackedMatrix& w3 = c.packed[3 * e + 1];
    const PackedMatrix& w2 = c.packed[3 * e + 2];
    const size_t inner = w1.view.rows;
    for (size_t i = 0; i < inner; ++i) {
      Expected gate;
      Expected up;
      for (size_t d = 0; d < dim; ++d) {
        const double x = c.x[t * dim + d];
        gate.Add(w1.values[i * dim + d] * x);
        up.Add(w3.values[i * dim + d] * x);
      }
      if (limit > 0) {
        gate.value = std::min(gate.value, limit);
        up.value = std::min(std::max(up.value, -limit), limit);
      }
      const double sigmoid = 1 / (1 + std::exp(-gate.value));
      const double weight = c.weights[t * c.topk + j];
      const double hidden = gate.value * sigmoid * up.value * weight;
      // An upper bound of what rounding errors of gate and up amount to.
      const double magnitude =
          (1 + gate.magnitude) * (1 + up.magnitude) * std::fabs(weight);
      for (size_t d = 0; d < dim; ++d) {
        const double w = w2.values[d * inner + i];
        y[d].value += hidden * w;
        y[d].magnitude += magnitude * std::fabs(w);
      }
    }
  }
  return y;
}

class ExpertsTest : public OpTest {
 protected:
  void Check(ExpertsCase& c, size_t threads) {
    CheckOnce(c, threads);
    // CUDA then does not look at the experts before it launches.
    c.args.device_experts = nullptr;
    if (is_cuda()) CheckOnce(c, threads);
    c.args.device_experts = c.experts.data();
  }
  void CheckOnce(ExpertsCase& c, size_t threads) {
    c.y.Poison();
    ops().experts(c.args, Pool(threads));
    for (size_t t = 0; t < c.tokens; ++t) {
      EXPECT_TRUE(AllClose(ExpectedExperts(c, t), c.y.data() + t * c.args.dim,
                           SumBound(c.args.dim + c.experts[0].w1.rows)))
          << WeightFormatName(c.experts[0].w1.format) << " dim " << c.args.dim
          << " inner " << c.experts[0].w1.rows << " token " << t;
    }
  }
};
ECPHORY_INSTANTIATE_OP_TEST(ExpertsTest);

TEST_P(ExpertsTest, EveryFormatAndShape) {
  Random random(27);
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t dim : {32, 96}) {
      for (const size_t inner : {32, 160}) {
        for (const size_t tokens : {1, 2, 9}) {
          ExpertsCase c(format, RowOf(format, dim), RowOf(format, inner),
                        tokens, 5, 3, random);
          for (const float limit : {0.0f, 0.75f}) {
            c.args.swiglu_limit = limit;
            Check(c, 1 + tokens % 3);
          }
        }
      }
    }
  }
}

// Rows so long that several warps share them, and up to five slots an expert.
TEST_P(ExpertsTest, LongRows) {
  Random random(37);
  for (const WeightFormat format :
       {WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32, WeightFormat::kQ8_0,
        WeightFormat::kMXFP4}) {
    for (const size_t tokens : {1, 2, 7}) {
      for (const size_t dim : {1056, 1344}) {
        ExpertsCase c(format, dim, 96, tokens, 5, 3, random);
        c.args.swiglu_limit = 2;
        Check(c, 2);
        ExpertsCase one(format, dim, 96, tokens, 1, 1, random);
        Check(one, 2);
      }
    }
  }
}

// Experts of a few formats for some tens of tokens: as few and as many as
// warps share rows of or not, with more choices than experts and less.
TEST_P(ExpertsTest, TensOfTokens) {
  Random random(38);
  // CUDA has kernels that differ by these; elsewhere some of them will do.
  const auto some = [&](std::vector<size_t> all, size_t count) {
    if (!is_cuda()) all.resize(count);
    return all;
  };
  for (const WeightFormat format :
       {WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32}) {
    for (const size_t experts : some({4, 30, 1, 60}, 2)) {
      for (const size_t tokens : some({17, 9, 40}, 1)) {
        const size_t topk = std::min<size_t>(experts, 6);
        for (const size_t dim : some({288, 1056}, 1)) {
          ExpertsCase c(format, dim, 320, tokens, experts, topk, random);
          c.args.swiglu_limit = 2;
          Check(c, 2);
        }
      }
    }
  }
}

// The same with more slots of an expert than are taken at a time, and experts
// with scales far apart, or so large or small that sums are extreme.
TEST_P(ExpertsTest, TensOfTokensAndEveryScale) {
  constexpr size_t kDim = 544, kInner = 320, kTokens = 60;
  Random random(40);
  ExpertsCase c(WeightFormat::kFp4Row32, kDim, kInner, kTokens, 9, 2, random);
  c.args.swiglu_limit = 2;
  Check(c, 2);
  for (const int least : {97, 40, 200}) {
    for (const size_t changed : {3, 5, 7}) {
      PackedMatrix& w = c.packed[changed];
      const uint32_t range = least == 97 ? 40 : 1;
      for (uint8_t& scale : w.scales) {
        scale = static_cast<uint8_t>(least + random.Below(range));
      }
      for (size_t r = 0; r < w.view.rows; ++r) {
        DequantizeRow(w.view, r, w.values.data() + r * w.view.cols);
      }
    }
    Check(c, 2);
  }
}

// Rows so long that on CUDA a stage of weights holds half as many of them, of
// one step or of the other.
TEST_P(ExpertsTest, TensOfTokensAndLongRows) {
  Random random(42);
  for (const auto& [dim, inner] :
       {std::pair<size_t, size_t>{2592, 320}, {320, 2336}, {5120, 32}}) {
    ExpertsCase c(WeightFormat::kFp4Row32, dim, inner, 9, 3, 2, random);
    c.args.swiglu_limit = 2;
    Check(c, 2);
  }
}

// Scales of 2^-127, which fp32 holds as a denormal, and inputs so large that
// they count.
TEST_P(ExpertsTest, TensOfTokensAndTheLeastScale) {
  Random random(43);
  ExpertsCase c(WeightFormat::kFp4Row32, 544, 320, 20, 5, 2, random);
  for (float& value : c.x) value *= 0x1p118f;
  for (size_t i = 0; i < c.packed.size(); ++i) {
    if (i % 3 == 2) continue;  // w2
    PackedMatrix& w = c.packed[i];
    for (uint8_t& scale : w.scales) scale = 0;
    for (size_t r = 0; r < w.view.rows; ++r) {
      DequantizeRow(w.view, r, w.values.data() + r * w.view.cols);
    }
  }
  Check(c, 2);
}

// Experts that some tokens choose, half of them, and all: on CUDA their weights
// are passed over once or several times, by inputs' formats, and take unequally
// long.
TEST_P(ExpertsTest, TensOfTokensUnevenly) {
  Random random(44);
  ExpertsCase c(WeightFormat::kFp4Row32, 288, 320, 40, 12, 3, random);
  for (size_t t = 0; t < c.tokens; ++t) {
    c.ids[3 * t] = 0;
    c.ids[3 * t + 1] = static_cast<int32_t>(1 + t % 2);
    c.ids[3 * t + 2] = static_cast<int32_t>(3 + t / 5);
  }
  for (float& value : c.x) value = RoundToBF16(value);
  c.args.swiglu_limit = 2;
  Check(c, 2);
  c.args.input = MatmulInput::kBF16;
  Check(c, 2);
}

// More slots of an expert than any kernel takes at a time, and an expert of
// another format among them.
TEST_P(ExpertsTest, SlotsByTheHundred) {
  Random random(36);
  for (const WeightFormat format : kWeightFormats) {
    const size_t dim = RowOf(format, 160), inner = RowOf(format, 384);
    for (const size_t tokens : {11, 50}) {  // by tens first
      ExpertsCase some(format, dim, inner, tokens, 4, 2, random);
      some.args.swiglu_limit = tokens == 11 ? 0.0f : 2.0f;
      Check(some, 2);
    }
    ExpertsCase c(format, dim, inner, 300, 4, 2, random);
    c.args.swiglu_limit = 2;
    Check(c, 3);
    const PackedMatrix w2 =
        RandomMatrix(WeightFormat::kF32, dim, inner, random);
    const PackedMatrix kept = std::move(c.packed[5]);
    c.experts[1].w2 = w2.view;
    c.packed[5].values = w2.values;
    Check(c, 2);
  }
}

// Matrices of several tiles, and one expert with scales far apart.
TEST_P(ExpertsTest, ManyTilesAndEveryScale) {
  constexpr size_t kDim = 288, kInner = 320;
  Random random(37);
  for (const WeightFormat format :
       {WeightFormat::kFp8Tile32, WeightFormat::kFp4Row32}) {
    ExpertsCase c(format, kDim, kInner, 270, 3, 2, random);
    Check(c, 2);
    for (const size_t changed : {3, 5}) {
      PackedMatrix& w = c.packed[changed];
      for (uint8_t& scale : w.scales) {
        scale = static_cast<uint8_t>(97 + random.Below(30));
      }
      for (size_t r = 0; r < w.view.rows; ++r) {
        DequantizeRow(w.view, r, w.values.data() + r * w.view.cols);
      }
      Check(c, 2);
    }
  }
}

TEST_P(ExpertsTest, OddShapesOfPlainFormats) {
  Random random(28);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16,
        WeightFormat::kFp8Tile32}) {
    for (const size_t dim : {1, 7, 17, 33}) {
      for (const size_t inner : {1, 9, 35}) {
        ExpertsCase c(format, dim, inner, 3, 3, 2, random);
        Check(c, 2);
      }
    }
  }
}

TEST_P(ExpertsTest, ManyTokens) {
  Random random(29);
  ExpertsCase many(WeightFormat::kMXFP4, 64, 32, 65, 16, 6, random);
  Check(many, 3);
}

// One expert that every token has.
TEST_P(ExpertsTest, TheSharedExpert) {
  Random random(291);
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t tokens : {1, 8, 9, 33, 65}) {
      ExpertsCase c(format, RowOf(format, 96), RowOf(format, 160), tokens, 1, 1,
                    random);
      c.args.swiglu_limit = 0.75f;
      Check(c, 2);
    }
  }
}

TEST_P(ExpertsTest, AccumulateAddsToWhatIsThere) {
  Random random(30);
  ExpertsCase c(WeightFormat::kMXFP4, 64, 32, 3, 4, 2, random);
  ops().experts(c.args, Pool(1));
  const std::vector<float> sum = c.y.Copy();
  for (size_t i = 0; i < c.y.size(); ++i) c.y[i] = 100;
  c.args.accumulate = true;
  ops().experts(c.args, Pool(1));
  for (size_t i = 0; i < c.y.size(); ++i) {
    EXPECT_NEAR(100.0 + sum[i], c.y[i], 1e-5 * (100 + std::fabs(sum[i])));
  }
}

// dim = inner = 1, so that every step can be done by hand.
class ExpertsByHand : public ExpertsTest {
 protected:
  float Run(float w1, float w3, float w2, float x, float weight, float limit,
            bool round_bf16) {
    const float stored[] = {w1, w3, w2};
    Expert expert;
    Matrix* const matrices[] = {&expert.w1, &expert.w3, &expert.w2};
    for (size_t i = 0; i < 3; ++i) {
      *matrices[i] = {.format = WeightFormat::kF32,
                      .rows = 1,
                      .cols = 1,
                      .data = reinterpret_cast<const uint8_t*>(stored + i)};
    }
    const int32_t id = 0;
    GuardedArray<float> y(1);
    ops().experts({.x = &x,
                   .tokens = 1,
                   .dim = 1,
                   .experts = &expert,
                   .n_experts = 1,
                   .inner = 1,
                   .ids = &id,
                   .weights = &weight,
                   .topk = 1,
                   .swiglu_limit = limit,
                   .round_bf16 = round_bf16,
                   .y = y.data()},
                  Pool(1));
    return y[0];
  }
  static double Silu(double x) { return x / (1 + std::exp(-x)); }
};
ECPHORY_INSTANTIATE_OP_TEST(ExpertsByHand);

TEST_P(ExpertsByHand, ClampsGateAboveAndUpOnBothSides) {
  EXPECT_NEAR(Silu(5) * 7 * 2, Run(5, 7, 1, 1, 2, 0, false), 1e-4);
  EXPECT_NEAR(Silu(3) * 3 * 2, Run(5, 7, 1, 1, 2, 3, false), 1e-4);
  EXPECT_NEAR(Silu(3) * -3 * 2, Run(5, -7, 1, 1, 2, 3, false), 1e-4);
  // The gate has no lower clamp.
  EXPECT_NEAR(Silu(-5) * 3 * 2, Run(-5, 7, 1, 1, 2, 3, false), 1e-6);
}

TEST_P(ExpertsByHand, ExtremeGatesStayFinite) {
  EXPECT_NEAR(0, Run(-1e4f, 1, 1, 1, 1, 0, false), 1e-30);
  EXPECT_NEAR(1e4, Run(1e4f, 1, 1, 1, 1, 0, false), 1e-2);
}

TEST_P(ExpertsByHand, TheClampsHideNoNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Run(nan, 1, 1, 1, 1, 3, false)));
  EXPECT_TRUE(std::isnan(Run(1, nan, 1, 1, 1, 3, false)));
}

TEST_P(ExpertsByHand, RoundsToBf16AtEveryBoundary) {
  // 1 + 2^-9 rounds to 1: visible in gate, in up and in w2's output.
  const float over = 1 + 0x1p-9f;
  const float silu1 = RoundToBF16(static_cast<float>(Silu(1)));
  EXPECT_EQ(silu1, Run(over, 1, 1, 1, 1, 0, true));
  EXPECT_EQ(silu1, Run(1, over, 1, 1, 1, 0, true));
  EXPECT_EQ(RoundToBF16(silu1 * over), Run(1, 1, over, 1, 1, 0, true));
  // The product is rounded with the routing weight inside.
  EXPECT_EQ(RoundToBF16(static_cast<float>(Silu(1) * 0.7f)),
            Run(1, 1, 1, 1, 0.7f, 0, true));
  EXPECT_NE(silu1, Run(1, 1, 1, 1, 1, 0, false));
}

TEST_P(ExpertsTest, RoundedOutputsAreSumsOfBf16Values) {
  Random random(31);
  ExpertsCase c(WeightFormat::kMXFP4, 64, 32, 4, 4, 1, random);
  c.args.round_bf16 = true;
  ops().experts(c.args, Pool(2));
  for (const float value : c.y) EXPECT_EQ(RoundToBF16(value), value);
  // Four roundings of relative size 2^-9.
  for (size_t t = 0; t < c.tokens; ++t) {
    EXPECT_TRUE(AllClose(ExpectedExperts(c, t), c.y.data() + t * c.args.dim,
                         4 * 0x1p-9));
  }
}

// Rounding x and the hidden vectors to int8: within what half a scale of each
// can amount to, and not exact.
TEST_P(ExpertsTest, Int8InputsAreApproximate) {
  if (is_cuda()) GTEST_SKIP() << "CUDA takes inputs as they are";
  Random random(33);
  for (const WeightFormat format : kWeightFormats) {
    ExpertsCase c(format, RowOf(format, 96), RowOf(format, 64), 9, 5, 3,
                  random);
    ops().experts(c.args, Pool(2));
    const std::vector<float> exact = c.y.Copy();
    c.args.input = MatmulInput::kInt8;
    c.y.Poison();
    ops().experts(c.args, Pool(2));
    EXPECT_EQ(!TakesInt8(format), exact == c.y.Copy())
        << WeightFormatName(format);
    for (size_t t = 0; t < c.tokens; ++t) {
      EXPECT_TRUE(AllClose(ExpectedExperts(c, t), c.y.data() + t * c.args.dim,
                           4.0 / 254))
          << WeightFormatName(format);
    }
  }
}

// A format apart for w2, as files of two bits have it, and one expert apart,
// whose inputs are then taken as they are.
TEST_P(ExpertsTest, Int8GoesByProjection) {
  if (is_cuda()) GTEST_SKIP() << "CUDA takes inputs as they are";
  Random random(34);
  ExpertsCase c(WeightFormat::kIQ2_XXS, 256, 256, 2, 3, 2, random);
  std::vector<PackedMatrix> mixed;
  mixed.reserve(9);
  for (size_t e = 0; e < 3; ++e) {
    mixed.push_back(std::move(c.packed[3 * e]));
    mixed.push_back(std::move(c.packed[3 * e + 1]));
    mixed.push_back(RandomMatrix(WeightFormat::kQ2_K, 256, 256, random));
    c.experts[e].w2 = mixed.back().view;
  }
  c.packed.swap(mixed);
  ops().experts(c.args, Pool(1));
  const std::vector<float> exact = c.y.Copy();
  c.args.input = MatmulInput::kInt8;
  ops().experts(c.args, Pool(1));
  EXPECT_NE(exact, c.y.Copy());
  for (size_t t = 0; t < c.tokens; ++t) {
    EXPECT_TRUE(AllClose(ExpectedExperts(c, t), c.y.data() + t * c.args.dim,
                         4.0 / 254));
  }
  const PackedMatrix f32 = RandomMatrix(WeightFormat::kF32, 256, 256, random);
  for (Expert& expert : c.experts) expert.w2 = f32.view;
  c.experts[2].w1 = f32.view;
  ops().experts(c.args, Pool(1));
  const std::vector<float> apart = c.y.Copy();
  c.args.input = MatmulInput::kF32;
  ops().experts(c.args, Pool(1));
  EXPECT_EQ(apart, c.y.Copy());
}

TEST_P(ExpertsTest, ATokensBitsDependOnNothingElse) {
  Random random(32);
  for (const WeightFormat format : kWeightFormats) {
    ExpertsCase c(format, RowOf(format, 64), RowOf(format, 32), 33, 7, 3,
                  random);
    if (format == WeightFormat::kQ8_0) c.args.input = MatmulInput::kInt8;
    if (format == WeightFormat::kQ2_K) c.args.input = MatmulInput::kInt8;
    c.args.round_bf16 = format == WeightFormat::kMXFP4;
    c.args.swiglu_limit = 2;
    const auto in_chunks = [&](size_t chunk, size_t threads) {
      c.y.Poison();
      for (size_t t = 0; t < c.tokens; t += chunk) {
        ExpertsArgs args = c.args;
        args.tokens = std::min(chunk, c.tokens - t);
        args.x += t * args.dim;
        args.ids += t * args.topk;
        args.weights += t * args.topk;
        args.y += t * args.dim;
        ops().experts(args, Pool(threads));
      }
      return c.y.Copy();
    };
    // Rounded to int8 an expert's few tokens are one case and more another; so
    // are they on CUDA.
    const bool two_orders = c.args.input == MatmulInput::kInt8 || is_cuda();
    const std::vector<float> few = in_chunks(1, 1);
    const std::vector<float> whole = in_chunks(c.tokens, 1);
    EXPECT_TRUE(two_orders || few == whole) << WeightFormatName(format);
    // CUDA: five tokens are some formats' least of many.
    const size_t most = is_cuda() ? 4 : 7;
    for (const size_t chunk : {size_t{1}, size_t{2}, most, c.tokens}) {
      for (const size_t threads : {1, 2, 3}) {
        EXPECT_EQ(chunk <= kMaxFewTokens ? few : whole,
                  in_chunks(chunk, threads))
            << WeightFormatName(format) << ", chunks of " << chunk << ", "
            << threads << " threads";
      }
    }
  }
}

TEST_P(ExpertsTest, TokenCountsAroundEveryBlockGiveTheBitsOfOneToken) {
  Random random(33);
  for (const WeightFormat format :
       {WeightFormat::kQ8_0, WeightFormat::kFp4Row32, WeightFormat::kIQ2_XXS,
        WeightFormat::kQ2_K}) {
    const size_t dim = RowOf(format, 160), inner = RowOf(format, 96);
    // CUDA adds up in another order where more than 4 tokens share experts.
    const size_t most = is_cuda() ? 4 : 513;
    ExpertsCase c(format, dim, inner, most, 4, 2, random);
    // A token of values that are too small for digits (ops/cpu/digits-inl.h).
    const size_t small = std::min<size_t>(most - 1, 5);
    for (size_t i = 0; i < dim; ++i) c.x[small * dim + i] *= 0x1p-100f;
    ExpertsArgs args = c.args;
    args.tokens = 1;
    for (size_t t = 0; t < c.tokens; ++t) {
      args.x = c.x.data() + t * dim;
      args.ids = c.ids.data() + t * c.topk;
      args.weights = c.weights.data() + t * c.topk;
      args.y = c.y.data() + t * dim;
      ops().experts(args, Pool(1));
    }
    for (const size_t tokens : {2, 4, 5, 6, 7, 8, 63, 128, 129, 513}) {
      if (tokens > c.tokens) continue;
      GuardedArray<float> y(tokens * dim);
      args = c.args;
      args.tokens = tokens;
      args.y = y.data();
      ops().experts(args, Pool(1 + tokens % 3));
      EXPECT_TRUE(SameBits(y, c.y))
          << WeightFormatName(format) << " x " << tokens;
    }
  }
}

// Rows and columns of all sharings of few tokens, not whole pieces of either.
TEST_P(ExpertsTest, LongRowsOfOneTokenGiveTheBitsOfFew) {
  Random random(63);
  ExpertsCase c(WeightFormat::kFp4Row32, 1056, 544, 3, 9, 6, random);
  CheckOnce(c, 1);
  const std::vector<float> few = c.y.Copy();
  c.y.Poison();
  for (size_t t = 0; t < c.tokens; ++t) {
    ExpertsArgs args = c.args;
    args.tokens = 1;
    args.x += t * args.dim, args.y += t * args.dim;
    args.ids += t * args.topk, args.weights += t * args.topk;
    ops().experts(args, Pool(1));
  }
  EXPECT_EQ(few, c.y.Copy());
}

TEST_P(ExpertsTest, Bf16InputsGiveTheBitsOfF32) {
  Random random(34);
  for (const WeightFormat format : kWeightFormats) {
    ExpertsCase c(format, RowOf(format, 160), RowOf(format, 96), 65, 4, 2,
                  random);
    for (float& value : c.x) value = RoundToBF16(value);
    c.args.round_bf16 = true;
    c.args.swiglu_limit = 2;
    ops().experts(c.args, Pool(1));
    for (const size_t tokens : {1, 6, 65}) {
      if (orders_by_tokens() && tokens > kMaxFewTokens) continue;
      ExpertsArgs args = c.args;
      GuardedArray<float> y(tokens * c.args.dim);
      args.tokens = tokens;
      args.input = MatmulInput::kBF16;
      args.y = y.data();
      ops().experts(args, Pool(1 + tokens % 3));
      EXPECT_TRUE(SameBits(y, c.y))
          << WeightFormatName(format) << " x " << tokens;
    }
  }
}

// Some tens of tokens, of which CUDA then multiplies one part instead of two: a
// tile of slots, several, and the last of them odd.
TEST_P(ExpertsTest, Bf16InputsOfTensOfTokens) {
  if (orders_by_tokens() && !is_cuda()) GTEST_SKIP() << "sums in two orders";
  Random random(39);
  for (const WeightFormat format :
       {WeightFormat::kFp4Row32, WeightFormat::kFp8Tile32}) {
    for (const size_t experts : {3, 30}) {
      for (const size_t tokens : {9, 40}) {
        const size_t topk = std::min<size_t>(experts, 6);
        ExpertsCase c(format, 1056, 320, tokens, experts, topk, random);
        for (float& value : c.x) value = RoundToBF16(value);
        c.args.round_bf16 = true;
        c.args.swiglu_limit = 2;
        ops().experts(c.args, Pool(1));
        const std::vector<float> expected = c.y.Copy();
        c.args.input = MatmulInput::kBF16;
        c.y.Poison();
        ops().experts(c.args, Pool(2));
        EXPECT_TRUE(SameBits(expected, c.y))
            << WeightFormatName(format) << ", " << experts << " experts x "
            << tokens;
      }
    }
  }
}

// The second and third matrices of one expert are of other formats.
TEST_P(ExpertsTest, Bf16InputsMeetExpertsOfSeveralFormats) {
  constexpr size_t kDim = 64, kInner = 96;
  Random random(35);
  for (const WeightFormat other :
       {WeightFormat::kFp4Row32, WeightFormat::kQ8_0}) {
    ExpertsCase c(WeightFormat::kMXFP4, kDim, kInner, 33, 3, 2, random);
    const PackedMatrix w2 = RandomMatrix(other, kDim, kInner, random);
    const PackedMatrix w3 = RandomMatrix(other, kInner, kDim, random);
    for (float& value : c.x) value = RoundToBF16(value);
    c.args.round_bf16 = true;
    for (size_t changed = 0; changed < 2; ++changed) {
      Expert& expert = c.experts[1];
      (changed == 0 ? expert.w2 : expert.w3) = changed == 0 ? w2.view : w3.view;
      c.args.input = MatmulInput::kF32;
      ops().experts(c.args, Pool(1));
      const std::vector<float> expected = c.y.Copy();
      c.args.input = MatmulInput::kBF16;
      c.y.Poison();
      ops().experts(c.args, Pool(2));
      EXPECT_TRUE(SameBits(expected, c.y)) << WeightFormatName(other);
    }
  }
}

}  // namespace
}  // namespace ecphory
