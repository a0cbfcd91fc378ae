#include "ops/hyper_connection.h"

#include "ops/testing.h"
#include "ops/weights_testing.h"

namespace ecphory {
namespace {

constexpr size_t kStreamCounts[] = {2, 3, 4, 5, 8, 16};
constexpr SigmoidForm kSigmoidForms[] = {SigmoidForm::kExp, SigmoidForm::kTanh};

class HyperConnectionTest : public OpTest {
 protected:
  // For values in (0, 2) that come from logits of magnitude below 10: the
  // slopes of sigmoid and softmax are at most 1, so an fp32 logit's error of a
  // few 1e-6 passes through undiminished at worst.
  double MixError() const { return is_ref() ? 3e-7 : 1e-5; }
};
ECPHORY_INSTANTIATE_OP_TEST(HyperConnectionTest);

struct Mix {
  std::vector<double> pre, post, comb;
};

double Logistic(double z) { return 1 / (1 + std::exp(-z)); }

// The logits of token t, by the formula of the header.
std::vector<double> MixLogits(const float* h, const std::vector<float>& fn,
                              size_t outputs, double eps) {
  const size_t n = fn.size() / outputs;
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(h[i]) * h[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
  std::vector<double> m(outputs);
  for (size_t o = 0; o < outputs; ++o) {
    for (size_t i = 0; i < n; ++i) m[o] += fn[o * n + i] * (h[i] * scale);
  }
  return m;
}

Mix ExpectedMix(const std::vector<double>& m, const float* scale,
                const float* base, size_t n, uint32_t iterations, double eps) {
  Mix mix;
  for (size_t s = 0; s < n; ++s) {
    mix.pre.push_back(Logistic(m[s] * scale[0] + base[s]) + eps);
    mix.post.push_back(2 * Logistic(m[n + s] * scale[1] + base[n + s]));
  }
  std::vector<std::vector<double>> c(n, std::vector<double>(n));
  for (size_t j = 0; j < n; ++j) {
    double sum = 0;
    for (size_t k = 0; k < n; ++k) {
      const size_t o = 2 * n + j * n + k;
      sum += c[j][k] = std::exp(m[o] * scale[2] + base[o]);
    }
    for (size_t k = 0; k < n; ++k) c[j][k] = c[j][k] / sum + eps;
  }
  for (uint32_t step = 1; step < 2 * iterations; ++step) {
    const bool by_column = step % 2 == 1;
    for (size_t a = 0; a < n; ++a) {
      double sum = eps;
      for (size_t b = 0; b < n; ++b) sum += by_column ? c[b][a] : c[a][b];
      for (size_t b = 0; b < n; ++b) (by_column ? c[b][a] : c[a][b]) /= sum;
    }
  }
  for (const auto& row : c)
    mix.comb.insert(mix.comb.end(), row.begin(), row.end());
  return mix;
}

// The arrays around one hc_split call without a pending expand.
struct MixCase {
  MixCase(WeightFormat format, size_t streams, size_t dim, size_t tokens,
          Random& random)
      : fn(RandomMatrix(format, (2 + streams) * streams, streams * dim,
                        random)),
        h(random.Array(tokens * streams * dim, 2)),
        scale({0.3f, 0.5f, 0.7f}),
        base(random.Array((2 + streams) * streams)),
        norm(random.Array(dim)),
        pre(tokens * streams),
        post(tokens * streams),
        comb(tokens * streams * streams),
        x(tokens * dim),
        args{.h = h.data(),
             .fn = fn.view,
             .scale = scale.data(),
             .base = base.data(),
             .tokens = tokens,
             .streams = streams,
             .dim = dim,
             .norm_eps = 1e-20f,
             .hc_eps = 1e-6f,
             .sinkhorn_iters = 20,
             .norm_weight = norm.data(),
             .pre = pre.data(),
             .post = post.data(),
             .comb = comb.data(),
             .x = x.data()} {
    // Logits stay of the order of 1 whatever the length.
    for (float& s : scale) s *= 3 / std::sqrt(static_cast<float>(fn.view.cols));
  }

  PackedMatrix fn;
  GuardedArray<float> h, scale, base, norm, pre, post, comb, x;
  HcSplitArgs args;
};

TEST_P(HyperConnectionTest, MixMatchesTheFormula) {
  Random random(7);
  for (const size_t streams : kStreamCounts) {
    for (const size_t dim : {1, 5, 16, 33, 64, 320}) {
      for (const SigmoidForm form : kSigmoidForms) {
        const size_t tokens = 1 + dim % 3;
        MixCase c(WeightFormat::kF32, streams, dim, tokens, random);
        c.args.sigmoid = form;
        ops().hc_split(c.args, Pool(1 + dim % 3));
        for (size_t t = 0; t < tokens; ++t) {
          const Mix expected = ExpectedMix(
              MixLogits(c.h.data() + t * streams * dim, c.fn.values,
                        (2 + streams) * streams, c.args.norm_eps),
              c.scale.data(), c.base.data(), streams, 20, c.args.hc_eps);
          for (size_t s = 0; s < streams; ++s) {
            const size_t i = t * streams + s;
            EXPECT_NEAR(expected.pre[s], c.pre[i], MixError());
            EXPECT_NEAR(expected.post[s], c.post[i], MixError());
          }
          for (size_t i = 0; i < streams * streams; ++i) {
            EXPECT_NEAR(expected.comb[i], c.comb[t * streams * streams + i],
                        MixError())
                << "H " << streams << " D " << dim << " entry " << i;
          }
        }
      }
    }
  }
}

TEST_P(HyperConnectionTest, MixReadsPackedWeights) {
  Random random(8);
  for (const WeightFormat format :
       {WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kQ8_0}) {
    MixCase c(format, 4, 48, 1, random);
    ops().hc_split(c.args, Pool(1));
    const Mix expected =
        ExpectedMix(MixLogits(c.h.data(), c.fn.values, 24, c.args.norm_eps),
                    c.scale.data(), c.base.data(), 4, 20, c.args.hc_eps);
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(expected.comb[i], c.comb[i], MixError());
    }
  }
}

TEST_P(HyperConnectionTest, CombIsDoublyStochastic) {
  Random random(9);
  for (const size_t streams : kStreamCounts) {
    MixCase c(WeightFormat::kF32, streams, 64, 1, random);
    ops().hc_split(c.args, Pool(1));
    for (size_t a = 0; a < streams; ++a) {
      double row = 0;
      double column = 0;
      for (size_t b = 0; b < streams; ++b) {
        row += c.comb[a * streams + b];
        column += c.comb[b * streams + a];
      }
      EXPECT_NEAR(1, row, 1e-4) << "H " << streams;
      // The last step divides columns by (sum + hc_eps).
      EXPECT_NEAR(1, column, 4e-6) << "H " << streams;
    }
  }
}

// With fn = 0 the outputs are functions of `base` alone.
Mix RunOnBase(const Ops& ops, const std::vector<float>& base, size_t streams,
              uint32_t iterations, SigmoidForm form) {
  Random random(10);
  MixCase c(WeightFormat::kF32, streams, 4, 1, random);
  std::fill(c.fn.data.begin(), c.fn.data.end(), 0);
  std::copy(base.begin(), base.end(), c.base.begin());
  c.args.hc_eps = 0;
  c.args.sinkhorn_iters = iterations;
  c.args.sigmoid = form;
  ops.hc_split(c.args, Pool(1));
  return {std::vector<double>(c.pre.begin(), c.pre.end()),
          std::vector<double>(c.post.begin(), c.post.end()),
          std::vector<double>(c.comb.begin(), c.comb.end())};
}

TEST_P(HyperConnectionTest, LiteralSinkhorn) {
  const float ln3 = std::log(3.0f);
  const std::vector<float> base = {0, ln3, 0, -ln3, 0, ln3, 0, 0};
  for (const SigmoidForm form : kSigmoidForms) {
    const Mix one = RunOnBase(ops(), base, 2, 1, form);
    const double kOnce[] = {1.0 / 3, 3.0 / 5, 2.0 / 3, 2.0 / 5};
    const Mix two = RunOnBase(ops(), base, 2, 2, form);
    const double kTwice[] = {4.0 / 11, 12.0 / 19, 7.0 / 11, 7.0 / 19};
    EXPECT_NEAR(0.5, one.pre[0], 1e-6);
    EXPECT_NEAR(0.75, one.pre[1], 1e-6);
    EXPECT_NEAR(1.0, one.post[0], 1e-6);
    EXPECT_NEAR(0.5, one.post[1], 1e-6);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(kOnce[i], one.comb[i], 1e-6) << i;
      EXPECT_NEAR(kTwice[i], two.comb[i], 1e-6) << i;
    }
  }
}

TEST_P(HyperConnectionTest, ExtremeLogitsStayFinite) {
  for (const SigmoidForm form : kSigmoidForms) {
    for (const float big : {100.0f, 1e4f, 3e38f}) {
      const Mix mix = RunOnBase(
          ops(), {big, -big, -big, big, big, -big, -big, big}, 2, 20, form);
      for (const size_t i : {0, 1}) {
        const double low = static_cast<double>(i);
        EXPECT_NEAR(1 - low, mix.pre[i], 1e-30) << big;
        EXPECT_NEAR(2 * low, mix.post[i], 1e-30) << big;
        EXPECT_NEAR(1 - low, mix.comb[i], 1e-30) << big;
        EXPECT_NEAR(low, mix.comb[2 + i], 1e-30) << big;
      }
    }
  }
}

TEST_P(HyperConnectionTest, HeadMatchesTheFormula) {
  Random random(12);
  for (const size_t streams : kStreamCounts) {
    for (const size_t dim : {1, 5, 64}) {
      constexpr size_t kTokens = 3;
      const PackedMatrix fn =
          RandomMatrix(WeightFormat::kF16, streams, streams * dim, random);
      const GuardedArray<float> h = random.Array(kTokens * streams * dim);
      const GuardedArray<float> base = random.Array(streams);
      const GuardedArray<float> scale = {0.1f};
      GuardedArray<float> pre(kTokens * streams);
      ops().hc_head({.h = h.data(),
                     .fn = fn.view,
                     .scale = scale.data(),
                     .base = base.data(),
                     .tokens = kTokens,
                     .streams = streams,
                     .dim = dim,
                     .norm_eps = 1e-6f,
                     .hc_eps = 1e-6f,
                     .pre = pre.data()},
                    Pool(2));
      for (size_t i = 0; i < pre.size(); ++i) {
        const size_t s = i % streams;
        const double m =
            MixLogits(h.data() + (i - s) * dim, fn.values, streams, 1e-6f)[s];
        EXPECT_NEAR(Logistic(m * scale[0] + base[s]) + 1e-6, pre[i],
                    MixError());
      }
    }
  }
}

TEST_P(HyperConnectionTest, HeadReadsBf16Streams) {
  Random random(14);
  for (const size_t tokens : {1, 3, 37}) {
    constexpr size_t kDim = 40, kStreams = 4;
    const PackedMatrix fn =
        RandomMatrix(WeightFormat::kF32, kStreams, kStreams * kDim, random);
    const GuardedArray<uint16_t> bits =
        ToBf16(random.Array(tokens * kStreams * kDim));
    const GuardedArray<float> values = Widened(bits);
    const GuardedArray<float> base = random.Array(kStreams), scale = {0.1f};
    const auto run = [&](ConstStreams h) {
      GuardedArray<float> pre(tokens * kStreams);
      ops().hc_head({.h = h,
                     .fn = fn.view,
                     .scale = scale.data(),
                     .base = base.data(),
                     .tokens = tokens,
                     .streams = kStreams,
                     .dim = kDim,
                     .norm_eps = 1e-6f,
                     .hc_eps = 1e-6f,
                     .pre = pre.data()},
                    Pool(2));
      return pre.Copy();
    };
    EXPECT_TRUE(SameBits(run(values.data()), run(bits.data()))) << tokens;
  }
}

TEST_P(HyperConnectionTest, CollapseAndExpandMatchTheFormula) {
  Random random(13);
  for (const size_t n : kStreamCounts) {
    for (const size_t dim : kDims) {
      const size_t tokens = dim > 1000 ? 1 : 3;
      const GuardedArray<float> h = random.Array(tokens * n * dim);
      const GuardedArray<float> y = random.Array(tokens * dim);
      const GuardedArray<float> pre = random.Array(tokens * n);
      const GuardedArray<float> comb = random.Array(tokens * n * n);
      std::vector<Expected> x(tokens * dim);
      std::vector<Expected> expanded(h.size());
      for (size_t t = 0; t < tokens; ++t) {
        for (size_t k = 0; k < n; ++k) {
          for (size_t i = 0; i < dim; ++i) {
            const double stream = h[(t * n + k) * dim + i];
            x[t * dim + i].Add(pre[t * n + k] * stream);
            Expected& out = expanded[(t * n + k) * dim + i];
            out.Add(static_cast<double>(pre[t * n + k]) * y[t * dim + i]);
            for (size_t j = 0; j < n; ++j) {
              out.Add(static_cast<double>(comb[(t * n + j) * n + k]) *
                      h[(t * n + j) * dim + i]);
            }
          }
        }
      }
      for (const size_t threads : {1, 2, 3}) {
        GuardedArray<float> collapsed(tokens * dim);
        ops().hc_collapse({.h = h.data(),
                           .pre = pre.data(),
                           .tokens = tokens,
                           .streams = n,
                           .dim = dim,
                           .x = collapsed.data()},
                          Pool(threads));
        EXPECT_TRUE(AllClose(x, collapsed.data(), SumBound(n)))
            << "H " << n << " D " << dim;
        GuardedArray<float> streams(h.size());
        std::copy(h.begin(), h.end(), streams.begin());
        ops().hc_expand({.y = y.data(),
                         .post = pre.data(),
                         .comb = comb.data(),
                         .tokens = tokens,
                         .streams = n,
                         .dim = dim,
                         .h = streams.data()},
                        Pool(threads));
        EXPECT_TRUE(AllClose(expanded, streams.data(), SumBound(n)))
            << "H " << n << " D " << dim;
      }
    }
  }
}

// An asymmetric 4 x 4: stream j holds 10^j, so the digits of each result name
// the coefficients that were used. A transposed comb gives other numbers.
TEST_P(HyperConnectionTest, ExpandSumsOverTheFirstIndexOfComb) {
  const GuardedArray<float> comb = {1, 2, 3, 4,  //
                                    5, 6, 7, 8,  //
                                    9, 1, 2, 3,  //
                                    4, 5, 6, 7};
  const GuardedArray<float> post = {1, 2, 3, 4};
  const GuardedArray<float> y = {10000};
  GuardedArray<float> h = {1, 10, 100, 1000};
  ops().hc_expand({.y = y.data(),
                   .post = post.data(),
                   .comb = comb.data(),
                   .tokens = 1,
                   .streams = 4,
                   .dim = 1,
                   .h = h.data()},
                  Pool(1));
  EXPECT_EQ((std::vector<float>{14951, 25162, 36273, 47384}), h.Copy());
}

// The row of comb is the source stream: a softmax over the wrong axis, or a
// transposed layout, would put these values elsewhere.
TEST_P(HyperConnectionTest, MixLaysCombOutAsSourceByDestination) {
  // Source 0 prefers destination 2; everything else is level.
  std::vector<float> base(6 + 9, 0.0f);
  base[6 + 0 * 3 + 2] = 2;
  const Mix mix = RunOnBase(ops(), base, 3, 1, SigmoidForm::kTanh);
  const double e2 = std::exp(2.0);
  const double favoured = e2 / (e2 + 2);  // row softmax, then column sums
  const double other = 1 / (e2 + 2);
  EXPECT_NEAR(favoured / (favoured + 2.0 / 3), mix.comb[2], 1e-6);
  EXPECT_NEAR(other / (other + 2.0 / 3), mix.comb[0], 1e-6);
  EXPECT_NEAR((1.0 / 3) / (other + 2.0 / 3), mix.comb[6], 1e-6);
}

}  // namespace
}  // namespace ecphory
