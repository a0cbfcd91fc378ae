#include "engram/row_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <thread>

namespace ecphory::engram {
namespace {

constexpr size_t kRowBytes = 264;
constexpr uint64_t kRows = 384'006'168;

std::unique_ptr<RowCache> MakeCache(uint64_t bytes,
                                    std::vector<RowCacheTable> tables = {
                                        {kRows, kRowBytes}}) {
  auto cache = RowCache::Create(bytes, tables);
  EXPECT_TRUE(cache.ok()) << cache.status().ToString();
  return std::move(cache).value();
}

// The bytes that row `row` of table `table` must have.
std::vector<uint8_t> RowOf(size_t table, uint64_t row, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  std::minstd_rand rng(static_cast<uint32_t>(row * 31 + table + 1));
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(rng() >> 7);
  return data;
}

void Insert(RowCache* cache, size_t table, uint64_t row) {
  cache->Insert(table, row, RowOf(table, row, cache->row_bytes(table)).data());
}

// Whether the cache has the row; its bytes are then checked.
bool Find(RowCache* cache, size_t table, uint64_t row) {
  std::vector<uint8_t> out(cache->row_bytes(table), 0xee);
  if (!cache->Find(table, row, out.data())) return false;
  EXPECT_EQ(out, RowOf(table, row, out.size())) << "row " << row;
  return true;
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(RowCache, WithoutBytesEveryRowMisses) {
  for (const uint64_t bytes : {0, 100, 4096}) {
    const auto cache = MakeCache(bytes);
    EXPECT_EQ(cache->bytes(), 0u);
    EXPECT_EQ(cache->capacity(0), 0u);
    Insert(cache.get(), 0, 1);
    EXPECT_FALSE(Find(cache.get(), 0, 1));
    EXPECT_EQ(cache->stats().misses, 1u);
    cache->Clear();
  }
}

TEST(RowCache, RefusesRowsOfImpossibleSize) {
  const std::vector<RowCacheTable> empty = {{10, 264}, {10, 0}};
  EXPECT_EQ(RowCache::Create(1 << 20, empty).status().code(),
            StatusCode::kInvalidArgument);
  const std::vector<RowCacheTable> wide = {{10, (1 << 20) + 1}};
  EXPECT_EQ(RowCache::Create(1 << 20, wide).status().code(),
            StatusCode::kInvalidArgument);
  const std::vector<RowCacheTable> endless = {{~uint64_t{0}, 264}, {10, 264}};
  EXPECT_EQ(RowCache::Create(1 << 20, endless).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(RowCache::Create(uint64_t{1} << 60, empty).status().code(),
            StatusCode::kInvalidArgument);
  const std::vector<RowCacheTable> good = {{10, 264}};
  EXPECT_EQ(RowCache::Create(uint64_t{1} << 60, good).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(RowCache, TakesNoMoreThanItIsGivenAndNearlyAllOfIt) {
  for (const uint64_t bytes :
       {uint64_t{1} << 20, uint64_t{5'000'001}, uint64_t{1} << 33}) {
    const auto cache = MakeCache(bytes, {{kRows, 264}, {kRows, 264}});
    EXPECT_LE(cache->bytes(), bytes);
    EXPECT_GT(cache->bytes(), bytes - bytes / 50);
    EXPECT_GT(cache->capacity(0) * kRowBytes, bytes - bytes / 12);
  }
}

TEST(RowCache, TablesOfUnequalRowsHaveRoomForAsMany) {
  const auto cache =
      MakeCache(8 << 20, {{kRows, 264}, {1000, 512}, {kRows, 264}});
  EXPECT_LE(cache->bytes(), uint64_t{8} << 20);
  EXPECT_NEAR(static_cast<double>(cache->capacity(0)),
              2.0 * static_cast<double>(cache->capacity(1)), 32);
  EXPECT_EQ(cache->capacity(0), cache->capacity(2));
  for (uint64_t row = 0; row < 1000; ++row) {
    for (size_t table = 0; table < 3; ++table) Insert(cache.get(), table, row);
  }
  for (uint64_t row = 0; row < 1000; ++row) {
    for (size_t table = 0; table < 3; ++table) {
      EXPECT_TRUE(Find(cache.get(), table, row)) << table << " " << row;
    }
  }
}

TEST(RowCache, UnusedMemoryIsNotResident) {
  const uint64_t before = ResidentBytes();
  const auto cache = MakeCache(uint64_t{4} << 30);
  EXPECT_GT(cache->bytes(), uint64_t{4'000'000'000});
  EXPECT_FALSE(Find(cache.get(), 0, 5));
  Insert(cache.get(), 0, 5);
  EXPECT_LT(ResidentBytes(), before + (16u << 20));
}

// Against a map of what was put in: a hit gives the very bytes, whatever was
// kept, and counters add up.
TEST(RowCache, EveryHitHasTheBytesThatWereInserted) {
  const auto cache = MakeCache(300'000, {{kRows, 264}, {500, 40}});
  std::mt19937 rng(7);
  std::geometric_distribution<uint64_t> skewed(0.002);
  std::map<std::pair<size_t, uint64_t>, bool> inserted;
  uint64_t hits = 0;
  for (int i = 0; i < 50'000; ++i) {
    const size_t table = rng() % 2;
    const uint64_t row = table == 0 ? skewed(rng) * 262'147 : rng() % 500;
    if (Find(cache.get(), table, row)) {
      ++hits;
      EXPECT_TRUE((inserted[{table, row}])) << table << " " << row;
    } else {
      inserted[{table, row}] = true;
      Insert(cache.get(), table, row);
    }
  }
  const RowCacheStats stats = cache->stats();
  EXPECT_EQ(stats.hits, hits);
  EXPECT_EQ(stats.hits + stats.misses, 50'000u);
  EXPECT_EQ(stats.inserted, stats.misses);
  EXPECT_LE(stats.inserted - stats.evicted,
            cache->capacity(0) + cache->capacity(1));
  EXPECT_GT(hits, 10'000u);
  EXPECT_GT(stats.evicted, 0u);
}

TEST(RowCache, ARowIsKeptOnce) {
  const auto cache = MakeCache(1 << 20);
  Insert(cache.get(), 0, 3);
  Insert(cache.get(), 0, 3);
  EXPECT_EQ(cache->stats().inserted, 1u);
}

TEST(RowCache, BatchesFindWhatSinglesFind) {
  const auto cache = MakeCache(4 << 20);
  for (const size_t count : {0, 1, 7, 8, 15, 16, 17, 48, 432}) {
    cache->Clear();
    std::vector<uint64_t> rows(count);
    std::vector<uint8_t> bytes, out(count * kRowBytes), found(count, 9);
    for (size_t i = 0; i < count; ++i) {
      rows[i] = i * 882'377 % kRows;
      const auto row = RowOf(0, rows[i], kRowBytes);
      bytes.insert(bytes.end(), row.begin(), row.end());
    }
    cache->InsertBatch(0, rows, bytes.data());
    for (size_t i = 0; i < count; i += 3) ++rows[i];  // rows that are not there
    EXPECT_EQ(cache->FindBatch(0, rows, out.data(), found.data()),
              count - (count + 2) / 3);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(found[i], i % 3 == 0 ? 0 : 1);
      if (i % 3 == 0) continue;
      EXPECT_TRUE(std::equal(bytes.begin() + i * kRowBytes,
                             bytes.begin() + (i + 1) * kRowBytes,
                             out.begin() + i * kRowBytes));
    }
  }
}

TEST(RowCache, ClearForgetsAndGivesMemoryBack) {
  const auto cache = MakeCache(64 << 20);
  for (uint64_t row = 0; row < 200'000; ++row) Insert(cache.get(), 0, row);
  const uint64_t full = ResidentBytes();
  cache->Clear();
  EXPECT_LT(ResidentBytes(), full - (50u << 20));
  EXPECT_FALSE(Find(cache.get(), 0, 199'999));
  Insert(cache.get(), 0, 199'999);
  EXPECT_TRUE(Find(cache.get(), 0, 199'999));
}

// Rows that come back survive any number of rows that do not.
TEST(RowCache, AScanDoesNotEvictRowsInUse) {
  const auto cache = MakeCache(1 << 20);
  const uint64_t hot = cache->capacity(0) / 4;
  const auto use = [&](uint64_t row) {
    const bool hit = Find(cache.get(), 0, row);
    if (!hit) Insert(cache.get(), 0, row);
    return hit;
  };
  uint64_t scan = 1'000'000;
  uint64_t hits = 0;
  for (int round = 0; round < 30; ++round) {
    for (uint64_t row = 0; row < hot; ++row) {
      hits += use(row * 64'007) && round >= 10;
      for (int i = 0; i < 3; ++i) use(scan++);
    }
  }
  EXPECT_GT(hits, 20 * hot * 95 / 100);
}

// What was popular once must not stay for ever.
TEST(RowCache, NewRowsReplaceThoseOfAnOlderText) {
  const auto cache = MakeCache(1 << 20);
  const uint64_t rows = cache->capacity(0) / 2;
  uint64_t hits = 0;
  for (uint64_t text = 0; text < 4; ++text) {
    for (int round = 0; round < 20; ++round) {
      for (uint64_t i = 0; i < rows; ++i) {
        const uint64_t row = (text * rows + i) * 64'007;
        if (Find(cache.get(), 0, row)) {
          hits += round == 19;
        } else {
          Insert(cache.get(), 0, row);
        }
      }
    }
  }
  EXPECT_GT(hits, 4 * rows * 95 / 100);
}

TEST(RowCache, ThreadsShareIt) {
  const auto cache = MakeCache(200'000, {{kRows, 264}, {kRows, 40}});
  const auto work = [&](uint32_t seed) {
    std::mt19937 rng(seed);
    for (int i = 0; i < 4000; ++i) {
      const size_t table = rng() % 2;
      std::vector<uint64_t> rows(rng() % 20);
      for (uint64_t& row : rows) row = rng() % 1500;
      std::vector<uint8_t> out(rows.size() * cache->row_bytes(table));
      std::vector<uint8_t> found(rows.size());
      cache->FindBatch(table, rows, out.data(), found.data());
      for (size_t r = 0; r < rows.size(); ++r) {
        const auto expected = RowOf(table, rows[r], cache->row_bytes(table));
        if (found[r] == 0) {
          cache->Insert(table, rows[r], expected.data());
        } else {
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                                 out.begin() + r * expected.size()));
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(cache->stats().hits, 0u);
}

}  // namespace
}  // namespace ecphory::engram
