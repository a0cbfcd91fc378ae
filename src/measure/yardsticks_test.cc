#include "measure/yardsticks.h"

#include <gtest/gtest.h>

namespace ecphory::measure {
namespace {

const YardstickOptions kShort = {.sample = {.seconds = 0.005, .rounds = 2},
                                 .bytes = 4 << 20,
                                 .pages = BenchPages::kSmall,
                                 .sgemm = nullptr};

TEST(Yardsticks, MeasuringAgainAddsRounds) {
  ThreadPool pool(2);
  Yardsticks yardsticks(kShort);
  EXPECT_EQ(yardsticks.Rate("read"), 0);
  ASSERT_TRUE(yardsticks.Measure(pool).ok());
  const size_t names = yardsticks.Report().size();
  for (const char* name : {"read", "update", "copy", "fma"}) {
    // Slower than memory of 1990, faster than any: something is not done.
    EXPECT_GT(yardsticks.Rate(name), 1e7) << name;
    EXPECT_LT(yardsticks.Rate(name), 1e14) << name;
  }
  ASSERT_TRUE(yardsticks.Measure(pool).ok());
  const std::vector<BenchYardstick> report = yardsticks.Report();
  EXPECT_EQ(report.size(), names);
  for (const BenchYardstick& yardstick : report) {
    EXPECT_GE(yardstick.value.rounds, 2u) << yardstick.name;
  }
}

std::vector<std::string> Names(const Beside& beside) {
  std::vector<std::string> names;
  for (const Beside::Side& side : beside.sides()) {
    names.push_back(side.yardstick.name);
  }
  return names;
}

TEST(Yardsticks, AFigureIsHeldToWhatBoundsIt) {
  ThreadPool pool(1);
  Yardsticks yardsticks(kShort);
  using Expected = std::vector<std::string>;
  // The processor has products of bf16, or those of fp32 bound it.
  ASSERT_TRUE(yardsticks.Measure(pool).ok());
  const std::string bf16 = yardsticks.Rate("bf16") > 0 ? "bf16" : "fma";
  const std::pair<Limits, Expected> cases[] = {
      {{}, {"read", "fma"}},
      {{.traffic = Traffic::kUpdate}, {"update", "fma"}},
      {{.traffic = Traffic::kUpdateHuge}, {"update_huge", "fma"}},
      {{.arithmetic = Arithmetic::kBF16}, {"read", bf16}},
      {{.arithmetic = Arithmetic::kNone}, {"read"}}};
  for (const auto& [limits, expected] : cases) {
    auto bounds = yardsticks.BoundsOf(limits, pool);
    ASSERT_TRUE(bounds.ok());
    EXPECT_EQ(Names(*bounds), expected);
  }
  auto peer = yardsticks.PeerOf(pool);
  ASSERT_TRUE(peer.ok());
  EXPECT_TRUE(peer->sides().empty());
}

TEST(Yardsticks, LooksBesideAFigureAreRoundsToo) {
  ThreadPool pool(2);
  Yardsticks yardsticks(kShort);
  ASSERT_TRUE(yardsticks.Measure(pool).ok());
  const auto rounds = [&] { return yardsticks.Report()[0].value.rounds; };
  ASSERT_EQ(yardsticks.Report()[0].name, "read");
  const uint32_t before = rounds();
  auto bounds = yardsticks.BoundsOf({}, pool);
  ASSERT_TRUE(bounds.ok());
  for (int i = 0; i < 3; ++i) bounds->Look();
  for (const Beside::Side& side : bounds->sides()) {
    for (const double rate : side.rates) {
      EXPECT_GT(rate, 1e7) << side.yardstick.name;
      EXPECT_LT(rate, 1e14) << side.yardstick.name;
    }
  }
  yardsticks.Add(*bounds);
  EXPECT_EQ(rounds(), before + 3);
}

}  // namespace
}  // namespace ecphory::measure
