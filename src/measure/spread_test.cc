#include "measure/spread.h"

#include <gtest/gtest.h>

namespace ecphory::measure {
namespace {

TEST(Spread, QuantilesLieBetweenNeighbours) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_EQ(Quantile(values, 0), 1);
  EXPECT_EQ(Quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.9), 6.8);
  EXPECT_EQ(Quantile(values, 1), 8);
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({5}, 0.9), 5);
}

TEST(Spread, OrderDoesNotMatter) {
  const BenchSpread spread = SpreadOf({8, 1, 4, 2, 16});
  EXPECT_EQ(spread.median, 4);
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.max, 16);
  EXPECT_DOUBLE_EQ(spread.p10, 1.4);
  EXPECT_DOUBLE_EQ(spread.p90, 12.8);
  EXPECT_EQ(spread.rounds, 5u);
}

}  // namespace
}  // namespace ecphory::measure
