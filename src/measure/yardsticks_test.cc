#include "measure/yardsticks.h"

#include <gtest/gtest.h>

namespace ecphory::measure {
namespace {

const YardstickOptions kShort = {
    {.seconds = 0.005, .rounds = 2}, 4 << 20, nullptr};

BenchFigure Figure(double bytes, double flops, double seconds) {
  BenchFigure figure;
  figure.bytes = bytes;
  figure.flops = flops;
  figure.seconds.median = seconds;
  return figure;
}

TEST(Yardsticks, MeasuringAgainAddsRounds) {
  ThreadPool pool(2);
  Yardsticks yardsticks;
  EXPECT_EQ(yardsticks.Rate("read"), 0);
  ASSERT_TRUE(yardsticks.Measure(kShort, pool).ok());
  const size_t names = yardsticks.Report().size();
  for (const char* name : {"read", "update", "copy", "fma"}) {
    // Slower than memory of 1990, faster than any: something is not done.
    EXPECT_GT(yardsticks.Rate(name), 1e7) << name;
    EXPECT_LT(yardsticks.Rate(name), 1e14) << name;
  }
  ASSERT_TRUE(yardsticks.Measure(kShort, pool).ok());
  const std::vector<BenchYardstick> report = yardsticks.Report();
  EXPECT_EQ(report.size(), names);
  for (const BenchYardstick& yardstick : report) {
    EXPECT_GE(yardstick.value.rounds, 2u) << yardstick.name;
  }
}

TEST(Yardsticks, TheLongerBoundHolds) {
  ThreadPool pool(1);
  Yardsticks yardsticks;
  ASSERT_TRUE(yardsticks.Measure(kShort, pool).ok());
  BenchFigure memory = Figure(1e9, 1, 1);
  yardsticks.HoldTo({}, BenchPages::kSmall, &memory);
  EXPECT_EQ(memory.bound, "read");
  EXPECT_DOUBLE_EQ(memory.bound_seconds, 1e9 / yardsticks.Rate("read"));
  EXPECT_DOUBLE_EQ(memory.share, memory.bound_seconds);

  BenchFigure update = Figure(1e9, 1, 1);
  yardsticks.HoldTo({.traffic = Traffic::kUpdate}, BenchPages::kSmall, &update);
  EXPECT_EQ(update.bound, "update");
  BenchFigure huge = Figure(1e9, 1, 1);
  yardsticks.HoldTo({.traffic = Traffic::kUpdateHuge}, BenchPages::kSmall,
                    &huge);
  EXPECT_EQ(huge.bound, "update_huge");

  BenchFigure arithmetic = Figure(1, 1e12, 2e12 / yardsticks.Rate("fma"));
  yardsticks.HoldTo({}, BenchPages::kSmall, &arithmetic);
  EXPECT_EQ(arithmetic.bound, "fma");
  EXPECT_NEAR(arithmetic.share, 0.5, 1e-12);

  // The processor has products of bf16, or those of fp32 bound it.
  const bool bf16 = yardsticks.Rate("bf16") > 0;
  BenchFigure half = Figure(1, 1e12, 1);
  yardsticks.HoldTo({.arithmetic = Arithmetic::kBF16}, BenchPages::kSmall,
                    &half);
  EXPECT_EQ(half.bound, bf16 ? "bf16" : "fma");

  BenchFigure other = Figure(1, 1e12, 1);
  yardsticks.HoldTo({.arithmetic = Arithmetic::kNone}, BenchPages::kSmall,
                    &other);
  EXPECT_EQ(other.bound, "read");

  BenchFigure nothing = Figure(0, 0, 1);
  yardsticks.HoldTo({}, BenchPages::kSmall, &nothing);
  EXPECT_EQ(nothing.bound, "");
  EXPECT_EQ(nothing.share, 0);
}

}  // namespace
}  // namespace ecphory::measure
