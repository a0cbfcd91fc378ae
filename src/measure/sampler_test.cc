#include "measure/sampler.h"

#include <gtest/gtest.h>

#include <chrono>
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

TEST(Sampler, AVerySlowCallIsTimedOnce) {
  const std::vector<double> seconds =
      Sample({[] { Sleep(30); }, nullptr}, {.seconds = 0.002, .rounds = 50});
  ASSERT_EQ(seconds.size(), 1u);
  EXPECT_GE(seconds[0], 0.03);
}

}  // namespace
}  // namespace ecphory::measure
