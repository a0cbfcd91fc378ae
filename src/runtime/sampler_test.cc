#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "ecphory/generate.h"

namespace ecphory {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Everything off: the model's own distribution.
SamplerOptions Plain() {
  SamplerOptions options;
  options.temperature = 1;
  options.min_p = 0;
  return options;
}

int32_t SampleOne(const SamplerOptions& options, std::vector<float> logits,
                  std::vector<int32_t> recent = {}) {
  Sampler sampler(options);
  Result<int32_t> id = sampler.Sample(logits, recent);
  EXPECT_TRUE(id.ok()) << id.status().ToString();
  return id.ok() ? *id : -1;
}

// Share of each id in many draws.
std::map<int32_t, double> Shares(const SamplerOptions& options,
                                 const std::vector<float>& logits,
                                 const std::vector<int32_t>& recent = {}) {
  constexpr int kDraws = 40000;
  Sampler sampler(options);
  std::map<int32_t, double> shares;
  for (int i = 0; i < kDraws; ++i) {
    Result<int32_t> id = sampler.Sample(logits, recent);
    EXPECT_TRUE(id.ok());
    shares[*id] += 1.0 / kDraws;
  }
  return shares;
}

// Six standard deviations of a share after 40,000 draws are at most 0.015.
constexpr double kTolerance = 0.015;

// Logits whose probabilities are 0.5, 0.25, 0.125, 0.125.
std::vector<float> Halves() {
  return {std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
}

TEST(SamplerTest, GreedyTakesTheBestAndTheLowerIdOfEquals) {
  SamplerOptions options;
  options.temperature = 0;
  EXPECT_EQ(SampleOne(options, {1, 3, 3, 2}), 1);
  EXPECT_EQ(SampleOne(options, {-5, -kInf, -4}), 2);
}

TEST(SamplerTest, PlainDrawsFollowTheSoftmax) {
  auto shares = Shares(Plain(), Halves());
  EXPECT_NEAR(shares[0], 0.5, kTolerance);
  EXPECT_NEAR(shares[1], 0.25, kTolerance);
  EXPECT_NEAR(shares[2], 0.125, kTolerance);
  EXPECT_NEAR(shares[3], 0.125, kTolerance);
}

// Temperature 0.5 squares the probabilities: 16 : 4 : 1 : 1.
TEST(SamplerTest, TemperatureSharpens) {
  SamplerOptions options = Plain();
  options.temperature = 0.5f;
  auto shares = Shares(options, Halves());
  EXPECT_NEAR(shares[0], 16.0 / 22, kTolerance);
  EXPECT_NEAR(shares[1], 4.0 / 22, kTolerance);
  EXPECT_NEAR(shares[2], 1.0 / 22, kTolerance);
}

TEST(SamplerTest, TopKKeepsTheLowerIdOfEquals) {
  SamplerOptions options = Plain();
  options.top_k = 3;
  auto shares = Shares(options, Halves());
  EXPECT_NEAR(shares[0], 4.0 / 7, kTolerance);
  EXPECT_NEAR(shares[2], 1.0 / 7, kTolerance);
  EXPECT_EQ(shares.count(3), 0u);
}

TEST(SamplerTest, TopPKeepsTheFewestThatReachIt) {
  SamplerOptions options = Plain();
  options.top_p = 0.7f;  // 0.5 is too little, 0.5 + 0.25 is enough
  auto shares = Shares(options, Halves());
  EXPECT_NEAR(shares[0], 2.0 / 3, kTolerance);
  EXPECT_NEAR(shares[1], 1.0 / 3, kTolerance);
  EXPECT_EQ(shares.size(), 2u);
  options.top_p = 0.4f;  // the best alone
  EXPECT_EQ(Shares(options, Halves()).size(), 1u);
}

// Among the three of top-k the first holds 4/7 = 0.571.
TEST(SamplerTest, TopPCountsWhatTopKLeft) {
  SamplerOptions options = Plain();
  options.top_k = 3;
  options.top_p = 0.56f;
  EXPECT_EQ(Shares(options, Halves()).size(), 1u);
}

TEST(SamplerTest, MinPIsRelativeToTheBest) {
  SamplerOptions options = Plain();
  options.min_p = 0.4f;  // below: 0.125 / 0.5 = 0.25
  auto shares = Shares(options, Halves());
  EXPECT_NEAR(shares[0], 2.0 / 3, kTolerance);
  EXPECT_EQ(shares.size(), 2u);
  options.min_p = 1;
  EXPECT_EQ(Shares(options, Halves()).size(), 1u);
}

TEST(SamplerTest, FiltersDoNotDependOnTheTemperature) {
  SamplerOptions options = Plain();
  options.min_p = 0.4f;
  options.temperature = 100;
  auto shares = Shares(options, Halves());
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares[0], 0.5, 2 * kTolerance);
}

TEST(SamplerTest, RepeatPenaltyActsOncePerIdInsideTheWindow) {
  SamplerOptions options;
  options.temperature = 0;
  options.repeat_penalty = 2;
  // 4 / 2 < 3, but only once: 4 / 2 > 1.5.
  EXPECT_EQ(SampleOne(options, {4, 3}, {0}), 1);
  EXPECT_EQ(SampleOne(options, {4, 1.5f}, {0, 0, 0}), 0);
  EXPECT_EQ(SampleOne(options, {-1, -1.5f}, {0}), 1);  // -1 * 2
  options.repeat_window = 1;
  EXPECT_EQ(SampleOne(options, {4, 3}, {0, 7, -1}), 0);
}

TEST(SamplerTest, MaskedTokensAreNeverDrawn) {
  auto shares = Shares(Plain(), {0, -kInf, 0});
  EXPECT_EQ(shares.count(1), 0u);
}

TEST(SamplerTest, SameSeedSameDraws) {
  std::vector<float> logits(100, 0.0f);
  SamplerOptions options = Plain();
  options.seed = 7;
  Sampler a(options), b(options);
  options.seed = 8;
  Sampler c(options);
  int differs = 0;
  for (int i = 0; i < 50; ++i) {
    const int32_t id = *a.Sample(logits, {});
    EXPECT_EQ(id, *b.Sample(logits, {}));
    differs += id != *c.Sample(logits, {});
  }
  EXPECT_GT(differs, 40);
}

// The 10,000th output of std::mt19937_64 with its default seed is fixed by the
// C++ standard; these draws are fixed by it and by Uniform().
TEST(SamplerTest, DrawsAreTheSameOnEveryPlatform) {
  SamplerOptions options = Plain();
  options.seed = 5489;  // first outputs: 14514284786278117030, ...
  std::vector<float> logits(1000, 0.0f);
  Sampler sampler(options);
  EXPECT_EQ(*sampler.Sample(logits, {}), 786);  // 0.7868209548678021
  EXPECT_EQ(*sampler.Sample(logits, {}), 250);  // 0.2504803406880287
  EXPECT_EQ(*sampler.Sample(logits, {}), 710);  // 0.7106712289787555
}

TEST(SamplerTest, RefusesLogitsThatAreNotNumbers) {
  Sampler sampler(Plain());
  const std::vector<std::vector<float>> bad = {
      {0, kNaN}, {kInf, 0}, {-kInf, -kInf}, {}};
  for (const std::vector<float>& logits : bad) {
    EXPECT_EQ(sampler.Sample(logits, {}).status().code(), StatusCode::kCorrupt);
  }
  EXPECT_NE(
      sampler.Sample(bad[0], {}).status().message().find("token 1 is NaN"),
      std::string::npos);
}

TEST(SamplerOptionsTest, NamesTheOptionAtFault) {
  const auto fault = [](auto change) {
    SamplerOptions options;
    change(options);
    return options.Validate().message();
  };
  using O = SamplerOptions;
  EXPECT_EQ(fault([](O&) {}), "");
  EXPECT_NE(fault([](O& o) { o.temperature = -1; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(fault([](O& o) { o.temperature = kNaN; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(fault([](O& o) { o.top_p = 0; }).find("top_p"), std::string::npos);
  EXPECT_NE(fault([](O& o) { o.min_p = 1.5f; }).find("min_p"),
            std::string::npos);
  EXPECT_NE(fault([](O& o) { o.repeat_penalty = 0; }).find("repeat_penalty"),
            std::string::npos);
  EXPECT_NE(
      fault([](O& o) { o.repeat_window = 1u << 30; }).find("repeat_window"),
      std::string::npos);
}

}  // namespace
}  // namespace ecphory
