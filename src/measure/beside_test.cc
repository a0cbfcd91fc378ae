// Shares of bounds that move while they are measured.
#include "measure/beside.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "measure/sampler.h"

namespace ecphory::measure {
namespace {

void Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

Yardstick Known(const char* name, Amount counted, double rate) {
  return {name, "", counted, rate, nullptr};
}

TEST(Beside, ARoundIsHeldToTheLooksAroundIt) {
  // 1 MB a call, which takes 2 ms at first and then 8.
  double time = 2e-3;
  Beside beside({{"read", "", Amount::kBytes, 1e6, [&] { Sleep(time); }}},
                1e-6);
  beside.Look();
  beside.Look();
  time = 8e-3;
  beside.Look();
  ASSERT_EQ(beside.sides().size(), 1u);
  const std::vector<double>& rates = beside.sides()[0].rates;
  ASSERT_EQ(rates.size(), 3u);
  EXPECT_LE(rates[0], 1e6 / 2e-3);
  EXPECT_LE(rates[2], 1e6 / 8e-3);
  BenchFigure figure;
  figure.bytes = 4e6;
  beside.Hold({16e-3, 40e-3}, &figure);
  EXPECT_EQ(figure.bound, "read");
  const double first = 4e6 * (1 / rates[0] + 1 / rates[1]) / 2;
  const double second = 4e6 * (1 / rates[1] + 1 / rates[2]) / 2;
  EXPECT_DOUBLE_EQ(figure.bound_seconds, (first + second) / 2);
  EXPECT_EQ(figure.share.rounds, 2u);
  EXPECT_DOUBLE_EQ(figure.share.median, (first / 16e-3 + second / 40e-3) / 2);
}

TEST(Beside, ALookTakesItsTime) {
  int calls = 0;
  Beside beside({{"read", "", Amount::kBytes, 1, [&] { ++calls; }}}, 20e-3);
  const double begin = Now();
  beside.Look();
  const double spent = Now() - begin;
  EXPECT_GE(spent, 20e-3);
  EXPECT_GT(calls, 1);
  ASSERT_EQ(beside.sides().size(), 1u);
  const double rate = beside.sides()[0].rates[0];
  EXPECT_GE(rate, calls / spent);
  EXPECT_LE(rate, calls / 20e-3);
}

TEST(Beside, TheLongerBoundHolds) {
  Beside beside(
      {Known("read", Amount::kBytes, 1e9), Known("fma", Amount::kFlops, 1e12)},
      1e-3);
  beside.Look();
  beside.Look();
  BenchFigure memory;
  memory.bytes = 1e9;
  memory.flops = 1;
  beside.Hold({4}, &memory);
  EXPECT_EQ(memory.bound, "read");
  EXPECT_DOUBLE_EQ(memory.bound_seconds, 1);
  EXPECT_DOUBLE_EQ(memory.share.median, 0.25);
  BenchFigure arithmetic;
  arithmetic.bytes = 1e9;
  arithmetic.flops = 2e12;
  beside.Hold({4}, &arithmetic);
  EXPECT_EQ(arithmetic.bound, "fma");
  EXPECT_DOUBLE_EQ(arithmetic.share.median, 0.5);
  BenchFigure nothing;
  beside.Hold({4}, &nothing);
  EXPECT_EQ(nothing.bound, "");
  EXPECT_EQ(nothing.share.rounds, 0u);
}

TEST(Beside, WithoutYardsticksNothingBounds) {
  Beside beside;
  beside.Look();
  BenchFigure figure;
  figure.bytes = 1;
  beside.Hold({1, 2, 3}, &figure);
  EXPECT_EQ(figure.bound, "");
}

}  // namespace
}  // namespace ecphory::measure
