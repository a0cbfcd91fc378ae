#include "measure/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace ecphory::measure {
namespace {

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(Sampler, AShortCallIsRepeatedWithinARound) {
  uint64_t calls = 0;
  const std::vector<double> seconds =
      Sample({[&] { ++calls; }, nullptr}, {.seconds = 0.01, .rounds = 5});
  EXPECT_EQ(seconds.size(), 5u);
  EXPECT_GT(calls, 100u);
  for (const double s : seconds) EXPECT_GT(s, 0);
}

TEST(Sampler, WhatIsDoneBeforeIsNotTimed) {
  uint64_t before = 0, calls = 0;
  const std::vector<double> seconds = Sample({[&] { ++calls; },
                                              [&] {
                                                ++before;
                                                Sleep(2);
                                              }},
                                             {.seconds = 0.05, .rounds = 5});
  EXPECT_EQ(before, calls);
  for (const double s : seconds) EXPECT_LT(s, 1e-3);
}

// What comes between rounds leaves the first call of a round something to do
// that others have not.
TEST(Sampler, RoundsAndWhatComesBetweenTakeTurns) {
  std::string order;
  bool cold = false;
  const std::vector<double> seconds =
      Sample({[&] {
                order += 'c';
                if (cold) Sleep(20);
                cold = false;
              },
              nullptr},
             {.seconds = 0.06, .rounds = 3}, [&] {
               order += 'b';
               cold = true;
             });
  ASSERT_EQ(seconds.size(), 3u);
  for (const double s : seconds) EXPECT_LT(s, 1e-3);
  EXPECT_EQ(std::count(order.begin(), order.end(), 'b'), 4);
  EXPECT_EQ(order.back(), 'b');
  EXPECT_EQ(order.find("bb"), std::string::npos);
}

TEST(Sampler, AVerySlowCallIsTimedOnce) {
  const std::vector<double> seconds =
      Sample({[] { Sleep(30); }, nullptr}, {.seconds = 0.002, .rounds = 50});
  ASSERT_EQ(seconds.size(), 1u);
  EXPECT_GE(seconds[0], 0.03);
}

}  // namespace
}  // namespace ecphory::measure
