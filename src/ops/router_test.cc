#include <set>

#include "ops/moe.h"
#include "ops/testing.h"

namespace ecphory {
namespace {

constexpr RouterScoreKind kKinds[] = {RouterScoreKind::kSqrtSoftplus,
                                      RouterScoreKind::kSigmoid,
                                      RouterScoreKind::kSoftmax};

class RouterTest : public OpTest {
 protected:
  // One token through the router.
  void Route(const std::vector<float>& logits, const std::vector<float>& bias,
             RouterArgs args) {
    GuardedArray<float> guarded_logits(logits.size());
    std::copy(logits.begin(), logits.end(), guarded_logits.begin());
    GuardedArray<float> guarded_bias(bias.size());
    std::copy(bias.begin(), bias.end(), guarded_bias.begin());
    GuardedArray<int32_t> ids(args.topk);
    GuardedArray<float> weights(args.topk);
    args.logits = guarded_logits.data();
    args.bias = guarded_bias.data();
    args.tokens = 1;
    args.experts = logits.size();
    args.ids = ids.data();
    args.weights = weights.data();
    ops().router(args, Pool(1));
    ids_ = ids.Copy();
    weights_ = weights.Copy();
  }

  std::vector<int32_t> ids_;
  std::vector<float> weights_;
};
ECPHORY_INSTANTIATE_OP_TEST(RouterTest);

std::vector<double> ExpectedScores(const float* logits, size_t experts,
                                   RouterScoreKind kind, double temperature) {
  std::vector<double> s(experts);
  double sum = 0;
  for (size_t e = 0; e < experts; ++e) {
    const double z = logits[e] / temperature;
    switch (kind) {
      case RouterScoreKind::kSqrtSoftplus:
        s[e] = std::sqrt(std::log1p(std::exp(z)));
        break;
      case RouterScoreKind::kSigmoid: s[e] = 1 / (1 + std::exp(-z)); break;
      case RouterScoreKind::kSoftmax: s[e] = std::exp(z); break;
    }
    sum += s[e];
  }
  if (kind == RouterScoreKind::kSoftmax) {
    for (double& value : s) value /= sum;
  }
  return s;
}

TEST_P(RouterTest, MatchesTheFormula) {
  Random random(26);
  for (const RouterScoreKind kind : kKinds) {
    for (const size_t experts : {1, 2, 5, 7, 8, 9, 16, 17, 33, 384}) {
      for (const size_t topk : {1, 2, 6}) {
        if (topk > experts) continue;
        for (const bool normalize : {false, true}) {
          constexpr size_t kTokens = 5;
          const GuardedArray<float> logits = random.Array(kTokens * experts, 4);
          const GuardedArray<float> bias = random.Array(experts, 0.3f);
          const GuardedArray<float> image = random.Array(experts, 0.3f);
          const GuardedArray<uint8_t> mask = {0, 1, 0, 1, 1};
          GuardedArray<int32_t> ids(kTokens * topk);
          GuardedArray<float> weights(kTokens * topk);
          ops().router({.logits = logits.data(),
                        .bias = bias.data(),
                        .bias_image = image.data(),
                        .image_mask = mask.data(),
                        .tokens = kTokens,
                        .experts = experts,
                        .topk = topk,
                        .score = kind,
                        .gate_temp = 1.5f,
                        .normalize = normalize,
                        .scale = 2.5f,
                        .ids = ids.data(),
                        .weights = weights.data()},
                       Pool(1 + experts % 3));
          for (size_t t = 0; t < kTokens; ++t) {
            const std::vector<double> s =
                ExpectedScores(logits.data() + t * experts, experts, kind, 1.5);
            const GuardedArray<float>& b = mask[t] != 0 ? image : bias;
            std::vector<int32_t> order(experts);
            for (size_t e = 0; e < experts; ++e) {
              order[e] = static_cast<int32_t>(e);
            }
            std::sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
              const size_t i = static_cast<size_t>(x);
              const size_t j = static_cast<size_t>(y);
              return s[i] + b[i] > s[j] + b[j];
            });
            double sum = 0;
            for (size_t j = 0; j < topk; ++j) {
              sum += s[static_cast<size_t>(order[j])];
            }
            for (size_t j = 0; j < topk; ++j) {
              const double weight = s[static_cast<size_t>(order[j])] /
                                    (normalize ? sum : 1) * 2.5;
              ASSERT_EQ(order[j], ids[t * topk + j])
                  << experts << " experts, top " << topk;
              // Scores take an exp, a log and a root.
              EXPECT_NEAR(weight, weights[t * topk + j],
                          4 * SumBound(topk) * weight);
            }
          }
        }
      }
    }
  }
}

TEST_P(RouterTest, TiesKeepTheLowerId) {
  for (const RouterScoreKind kind : kKinds) {
    Route(std::vector<float>(19, 0.5f), std::vector<float>(19, 0),
          {.topk = 4, .score = kind});
    EXPECT_EQ((std::vector<int32_t>{0, 1, 2, 3}), ids_);
    for (const float weight : weights_) EXPECT_NEAR(0.25, weight, 1e-6);
  }
  Route({0, 1, 0, 1, 1}, {0, 0, 0, 0, 0}, {.topk = 4});
  EXPECT_EQ((std::vector<int32_t>{1, 3, 4, 0}), ids_);
}

TEST_P(RouterTest, BiasChoosesButDoesNotWeigh) {
  Route({0, 0, 0}, {0, -1, 5},
        {.topk = 2, .score = RouterScoreKind::kSigmoid, .normalize = false});
  EXPECT_EQ((std::vector<int32_t>{2, 0}), ids_);
  EXPECT_NEAR(0.5, weights_[0], 1e-6);
  EXPECT_NEAR(0.5, weights_[1], 1e-6);
}

TEST_P(RouterTest, ImageTokensUseTheirOwnBias) {
  const GuardedArray<float> image = {0, 9, 0};
  const GuardedArray<uint8_t> mask = {1};
  RouterArgs args{.bias_image = image.data(), .topk = 1};
  Route({0, 0, 0}, {9, 0, 0}, args);
  EXPECT_EQ((std::vector<int32_t>{0}), ids_);
  args.image_mask = mask.data();
  Route({0, 0, 0}, {9, 0, 0}, args);
  EXPECT_EQ((std::vector<int32_t>{1}), ids_);
}

TEST_P(RouterTest, LiteralScores) {
  Route({0}, {0}, {.topk = 1, .normalize = false});
  EXPECT_NEAR(std::sqrt(std::log(2.0)), weights_[0], 1e-6);
  Route({6}, {0}, {.topk = 1, .gate_temp = 2, .normalize = false});
  EXPECT_NEAR(std::sqrt(std::log1p(std::exp(3.0))), weights_[0], 1e-6);
  Route({std::log(3.0f), 0}, {0, 0},
        {.topk = 2, .score = RouterScoreKind::kSoftmax, .scale = 4});
  EXPECT_NEAR(3, weights_[0], 1e-5);
  EXPECT_NEAR(1, weights_[1], 1e-5);
}

TEST_P(RouterTest, ExtremeLogitsStayFinite) {
  Route({1e4f, -1e4f, 0}, {0, 0, 0}, {.topk = 3, .normalize = false});
  EXPECT_EQ((std::vector<int32_t>{0, 2, 1}), ids_);
  EXPECT_NEAR(100, weights_[0], 1e-4);
  EXPECT_NEAR(0, weights_[2], 1e-18);
  // All scores zero: the sum's 1e-20 keeps the quotient finite.
  for (const RouterScoreKind kind :
       {RouterScoreKind::kSqrtSoftplus, RouterScoreKind::kSigmoid}) {
    Route({-1e4f, -1e4f}, {0, 0}, {.topk = 2, .score = kind});
    EXPECT_EQ((std::vector<float>{0, 0}), weights_);
  }
  Route({1e4f, -1e4f}, {0, 0}, {.topk = 2, .score = RouterScoreKind::kSoftmax});
  EXPECT_EQ((std::vector<float>{1, 0}), weights_);
}

// A model gone wrong must not index outside the experts.
TEST_P(RouterTest, NaNLogitsStillGiveDistinctValidIds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const RouterScoreKind kind : kKinds) {
    for (const auto& logits : {std::vector<float>(9, nan),
                               std::vector<float>{nan, 1, nan, 2, 3, 4}}) {
      Route(logits, std::vector<float>(logits.size(), 0),
            {.topk = 3, .score = kind});
      const std::set<int32_t> distinct(ids_.begin(), ids_.end());
      EXPECT_EQ(3u, distinct.size());
      EXPECT_LE(0, *distinct.begin());
      EXPECT_GT(static_cast<int32_t>(logits.size()), *distinct.rbegin());
    }
  }
}

}  // namespace
}  // namespace ecphory
