#include "engram/latency_histogram.h"

#include <gtest/gtest.h>

namespace ecphory::engram {
namespace {

TEST(LatencyHistogram, QuantilesAreUpperEdges) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  for (int us = 1; us <= 1000; ++us) histogram.Add(us * 1e-6);
  EXPECT_EQ(histogram.count(), 1000u);
  for (double q : {0.01, 0.1, 0.5, 0.9, 0.99, 1.0}) {
    EXPECT_GE(histogram.Quantile(q), q * 1e-3 * 0.9999) << q;
    EXPECT_LE(histogram.Quantile(q), q * 1e-3 * 1.1) << q;
  }
  EXPECT_EQ(histogram.Quantile(0), 1e-6);
  EXPECT_EQ(histogram.Quantile(-1), histogram.Quantile(0));
  EXPECT_EQ(histogram.Quantile(2), histogram.Quantile(1));
}

TEST(LatencyHistogram, TheEndsTakeWhatLiesBeyond) {
  LatencyHistogram histogram;
  histogram.Add(0);
  histogram.Add(-1);
  EXPECT_EQ(histogram.Quantile(1), 1e-6);
  histogram.Add(1e6);
  EXPECT_NEAR(histogram.Quantile(1), 16.8, 0.1);
}

}  // namespace
}  // namespace ecphory::engram
