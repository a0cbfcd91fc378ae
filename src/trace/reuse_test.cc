// Counting held to loops that look at everything.
#include "trace/reuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <set>

namespace ecphory::trace {
namespace {

std::vector<uint64_t> RandomKeys(size_t count, uint64_t range, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint64_t> keys;
  // Squares crowd the small numbers: some keys often, many seldom.
  for (size_t i = 0; i < count; ++i) {
    const uint64_t x = random() % range;
    keys.push_back(x * x / range);
  }
  return keys;
}

TEST(ReuseTest, PreviousUseByHand) {
  const std::vector<uint64_t> rows = {5, 7, 5, 5, 9, 7};
  const std::vector<uint32_t> expected = {kNever, kNever, 0, 2, kNever, 1};
  EXPECT_EQ(PreviousUse(rows), expected);
}

TEST(ReuseTest, WindowsAgreeWithSets) {
  for (const uint32_t window : {1u, 3u, 10u, 64u, 1000u}) {
    const std::vector<uint64_t> rows = RandomKeys(300, 60, window);
    ReuseCounts expected;
    std::set<uint64_t> earlier;
    for (size_t begin = 0; begin < rows.size(); begin += window) {
      std::set<uint64_t> inside;
      const size_t end = std::min<size_t>(begin + window, rows.size());
      for (size_t t = begin; t < end; ++t) {
        ++expected.requests;
        if (!inside.insert(rows[t]).second) {
          ++expected.within;
          continue;
        }
        ++expected.distinct;
        if (earlier.count(rows[t]) != 0) ++expected.across;
      }
      earlier.insert(inside.begin(), inside.end());
    }
    const ReuseCounts found = CountReuse(PreviousUse(rows), window);
    EXPECT_EQ(found.requests, expected.requests);
    EXPECT_EQ(found.within, expected.within) << window;
    EXPECT_EQ(found.distinct, expected.distinct) << window;
    EXPECT_EQ(found.across, expected.across) << window;
  }
}

uint64_t HitsOfOneCache(const std::vector<uint64_t>& keys, size_t size) {
  std::list<uint64_t> cache;  // newest first
  uint64_t hits = 0;
  for (const uint64_t key : keys) {
    const auto at = std::find(cache.begin(), cache.end(), key);
    if (at != cache.end()) {
      ++hits;
      cache.erase(at);
    }
    cache.push_front(key);
    if (cache.size() > size) cache.pop_back();
  }
  return hits;
}

TEST(ReuseTest, StackDistancesAgreeWithCachesOfEverySize) {
  const std::vector<uint64_t> sizes = {0, 1, 2, 5, 17, 60, 1000};
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const std::vector<uint64_t> keys = RandomKeys(500, 80, seed);
    const std::vector<uint64_t> hits = LruHits(keys, sizes);
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(hits[i], HitsOfOneCache(keys, sizes[i])) << sizes[i];
    }
  }
  EXPECT_EQ(LruHits({}, sizes), std::vector<uint64_t>(sizes.size()));
}

TEST(ReuseTest, Quantiles) {
  const std::vector<double> sorted = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(Quantile(sorted, .5), 5);
  EXPECT_EQ(Quantile(sorted, .95), 10);
  EXPECT_EQ(Quantile(sorted, 0), 1);
  EXPECT_EQ(Quantile(sorted, 1), 10);
  EXPECT_EQ(Quantile({}, .5), 0);
}

}  // namespace
}  // namespace ecphory::trace
