#include "ecphory/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ecphory {
namespace {

TEST(DurationHistogram, IsEmptyAtFirst) {
  const DurationHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
}

TEST(DurationHistogram, OneDurationIsEveryQuantile) {
  for (const double seconds : {1e-9, 15e-9, 17e-9, 4.3e-6, 1e-3, 2.5, 1700.0}) {
    DurationHistogram histogram;
    histogram.Add(seconds);
    for (const double q : {0.0, 0.5, 0.99, 1.0}) {
      EXPECT_GE(histogram.Quantile(q), seconds * (1 - 1e-9)) << seconds;
      EXPECT_LE(histogram.Quantile(q), seconds * (1 + 1.0 / 16)) << seconds;
    }
  }
}

TEST(DurationHistogram, QuantilesAreThoseOfTheSortedDurations) {
  std::mt19937 rng(1);
  std::vector<double> durations;
  DurationHistogram histogram;
  for (int i = 0; i < 10000; ++i) {
    durations.push_back(1e-6 *
                        std::exp2(static_cast<double>(rng() % 1000) / 100));
    histogram.Add(durations.back());
  }
  std::sort(durations.begin(), durations.end());
  for (const double q : {0.1, 0.5, 0.95, 0.99}) {
    const double exact = durations[static_cast<size_t>(q * 10000) - 1];
    EXPECT_GE(histogram.Quantile(q), exact) << q;
    EXPECT_LE(histogram.Quantile(q), exact * (1 + 1.0 / 16)) << q;
  }
}

TEST(DurationHistogram, ADifferenceIsWhatHappenedSince) {
  DurationHistogram histogram;
  for (int i = 0; i < 100; ++i) histogram.Add(1);
  const DurationHistogram earlier = histogram;
  histogram.Add(1e-3);
  histogram -= earlier;
  EXPECT_EQ(histogram.count(), 1u);
  EXPECT_LT(histogram.Quantile(1), 1.1e-3);
}

TEST(DurationHistogram, AbsurdDurationsAreClamped) {
  DurationHistogram histogram;
  histogram.Add(-1);
  EXPECT_EQ(histogram.Quantile(1), 0);
  histogram.Add(1e30);
  EXPECT_GT(histogram.Quantile(1), 1000);
  EXPECT_LT(histogram.Quantile(1), 2000);
}

}  // namespace
}  // namespace ecphory
