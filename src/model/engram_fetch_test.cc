// Rows that are read ahead: the right ones, in time, and dropped when wrong.
#include "model/engram_fetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "engram/store_testing.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

using engram::GateFile;
using engram::History;
using engram::TestTable;

constexpr uint32_t kVocab = 20;
constexpr uint32_t kWidth = 32;
constexpr size_t kChunk = 200;  // four blocks, the last one short

engram::Hasher SmallHasher() {
  const engram::LayoutSpec spec{{1, 3}, 3, 2, 50, kVocab};
  std::vector<int32_t> map(kVocab);
  std::iota(map.begin(), map.end(), 0);
  return *engram::Hasher::Create(*engram::DeriveLayout(spec), map, 7);
}

std::vector<int32_t> Tokens(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<int32_t>(rng() % kVocab);
  return tokens;
}

// Two tables behind gates, and a fetcher over them.
class EngramFetchTest : public ::testing::Test {
 protected:
  EngramFetchTest() {
    for (const engram::LayerLayout& layer : hasher_.layout().layers) {
      tables_.emplace_back(TableCodec::kRow264, layer.rows, kWidth,
                           "table " + std::to_string(layer.layer_id));
    }
  }

  void Open() {
    std::vector<engram::TableSource> sources;
    for (TestTable& table : tables_) {
      engram::TableSource source = table.Source();
      gates_.push_back(std::make_shared<GateFile>(source.file));
      source.file = gates_.back();
      sources.push_back(source);
    }
    engram::StoreOptions options;
    options.io = IoMode::kPread;
    options.io_threads = 2;
    options.cache_bytes = 0;
    auto store = engram::Store::Open(std::move(sources), options);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(*store);
    auto fetch = EngramFetch::Create(hasher_, *store_, nullptr, kChunk,
                                     HostDevice(), pool_);
    ASSERT_TRUE(fetch.ok()) << fetch.status().ToString();
    fetch_ = std::move(*fetch);
  }

  static std::vector<uint8_t> NoImage(std::span<const int32_t> tokens) {
    return std::vector<uint8_t>(tokens.size());
  }
  Status Ahead(std::span<const int32_t> tokens, const History& before = {}) {
    const EngramFetch::Stretch whole{tokens.size(), before};
    return fetch_->Ahead(tokens, NoImage(tokens), {&whole, 1});
  }
  Status Begin(std::span<const int32_t> tokens, const History& before = {}) {
    const EngramFetch::Stretch whole{tokens.size(), before};
    return fetch_->Begin(tokens, NoImage(tokens), {&whole, 1});
  }

  // What Take gives for a whole layer of the current chunk.
  Result<std::vector<float>> TakeAll(size_t index, size_t tokens) {
    std::vector<float> values;
    for (size_t first = 0; first < tokens;) {
      ECPHORY_ASSIGN_OR_RETURN(const EngramFetch::Rows rows,
                               fetch_->Take(index, first));
      EXPECT_GE(rows.tokens, 1u);
      EXPECT_LE(rows.tokens, EngramFetch::kMaxTaken);
      std::vector<float> some(rows.tokens * columns() * kWidth);
      uint32_t broken = 0;
      RefOps().decode_rows({.from = rows.from,
                            .count = rows.tokens * columns(),
                            .width = kWidth,
                            .x = some.data(),
                            .broken = &broken},
                           pool_);
      EXPECT_EQ(broken, 0u);
      values.insert(values.end(), some.begin(), some.end());
      first += rows.tokens;
      EXPECT_LE(first, tokens);
    }
    return values;
  }

  // Row numbers of a layer, token by token.
  std::vector<uint64_t> RowsOf(size_t index, std::span<const int32_t> tokens,
                               History before = {}) const {
    std::vector<std::vector<uint64_t>> rows(
        2, std::vector<uint64_t>(tokens.size() * columns()));
    const std::vector<std::span<uint64_t>> views(rows.begin(), rows.end());
    hasher_.Hash(tokens, &before, views);
    return rows[index];
  }

  // What TakeAll must give, from the tables themselves.
  std::vector<float> Want(size_t index, std::span<const int32_t> tokens,
                          const History& before = {}) const {
    std::vector<float> values;
    for (const uint64_t row : RowsOf(index, tokens, before)) {
      const std::vector<float> one = tables_[index].Row(row);
      values.insert(values.end(), one.begin(), one.end());
    }
    return values;
  }

  // Begins the chunk and compares both layers.
  void ExpectRightRows(std::span<const int32_t> tokens,
                       const History& before = {}) {
    ASSERT_TRUE(Begin(tokens, before).ok());
    for (size_t index = 0; index < 2; ++index) {
      const auto got = TakeAll(index, tokens.size());
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_EQ(*got, Want(index, tokens, before)) << "layer " << index;
    }
    fetch_->End();
  }

  size_t columns() const { return hasher_.layout().columns(); }
  uint64_t lookups() const { return store_->stats().lookups; }

  ThreadPool pool_{1};
  const engram::Hasher hasher_ = SmallHasher();
  std::vector<TestTable> tables_;
  std::vector<std::shared_ptr<GateFile>> gates_;
  std::unique_ptr<engram::Store> store_;
  std::unique_ptr<EngramFetch> fetch_;
};

TEST_F(EngramFetchTest, GivesTheRowsOfEveryToken) {
  Open();
  for (const size_t count : {1u, 2u, 63u, 64u, 65u, 128u, 129u, 200u}) {
    ExpectRightRows(Tokens(count, static_cast<uint32_t>(count)));
  }
}

TEST_F(EngramFetchTest, ChunksFollowEachOther) {
  Open();
  const std::vector<int32_t> tokens = Tokens(600, 1);
  const std::span<const int32_t> all(tokens);
  History history;
  for (size_t first = 0; first < all.size(); first += kChunk) {
    const auto chunk = all.subspan(first, kChunk);
    ExpectRightRows(chunk, history);
    history = fetch_->after(0);
    if (first + kChunk == all.size()) break;
    ASSERT_TRUE(Ahead(all.subspan(first + kChunk, kChunk), history).ok());
  }
  // Each chunk was asked for once: four blocks of two layers.
  EXPECT_EQ(lookups(), 3u * 4 * 2);
}

TEST_F(EngramFetchTest, TheSameRowsAreNotAskedForAgain) {
  Open();
  const auto tokens = Tokens(5, 2);
  ASSERT_TRUE(Ahead(tokens).ok());
  const uint64_t before = lookups();
  ASSERT_TRUE(Ahead(tokens).ok());
  ExpectRightRows(tokens);
  EXPECT_EQ(lookups(), before);
}

TEST_F(EngramFetchTest, WrongGuessesAreNeverUsed) {
  Open();
  const auto tokens = Tokens(5, 3), other = Tokens(5, 4), longer = Tokens(6, 3);
  History history;
  hasher_.Advance(Tokens(3, 5), &history);
  ASSERT_TRUE(Ahead(other).ok());
  ExpectRightRows(tokens);
  ASSERT_TRUE(Ahead(longer).ok());
  ExpectRightRows(tokens);
  ASSERT_TRUE(Ahead(tokens).ok());  // the same tokens, elsewhere
  ExpectRightRows(tokens, history);
  ASSERT_TRUE(Ahead(tokens, history).ok());
  ExpectRightRows(tokens);
}

TEST_F(EngramFetchTest, AnImagePositionIsAnotherChunk) {
  Open();
  const auto tokens = Tokens(5, 6);
  ASSERT_TRUE(Ahead(tokens).ok());
  const uint64_t before = lookups();
  const std::vector<uint8_t> image = {0, 0, 1, 0, 0};
  const EngramFetch::Stretch whole{tokens.size(), {}};
  ASSERT_TRUE(fetch_->Begin(tokens, image, {&whole, 1}).ok());
  EXPECT_GT(lookups(), before);
}

// Short sequences, and one that ends inside a block of rows.
TEST_F(EngramFetchTest, SequencesHaveHistoriesOfTheirOwn) {
  Open();
  std::vector<EngramFetch::Stretch> stretches;
  std::vector<int32_t> tokens;
  std::vector<float> want[2];
  for (const size_t count : {1u, 1u, 70u, 5u}) {
    const auto seed = static_cast<uint32_t>(stretches.size());
    History before;
    if (seed > 0) hasher_.Advance(Tokens(seed, 60 + seed), &before);
    const auto some = Tokens(count, 70 + seed);
    for (size_t index = 0; index < 2; ++index) {
      const auto values = Want(index, some, before);
      want[index].insert(want[index].end(), values.begin(), values.end());
    }
    tokens.insert(tokens.end(), some.begin(), some.end());
    stretches.push_back({count, before});
  }
  ASSERT_TRUE(fetch_->Ahead(tokens, NoImage(tokens), stretches).ok());
  const uint64_t asked = lookups();
  ASSERT_TRUE(fetch_->Begin(tokens, NoImage(tokens), stretches).ok());
  EXPECT_EQ(lookups(), asked);
  for (size_t index = 0; index < 2; ++index) {
    const auto got = TakeAll(index, tokens.size());
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(*got, want[index]) << "layer " << index;
  }
  for (size_t i = 0, first = 0; i < stretches.size(); ++i) {
    History after = stretches[i].before;
    const size_t count = stretches[i].tokens;
    hasher_.Advance(std::span(tokens).subspan(first, count), &after);
    EXPECT_EQ(fetch_->after(i).length, after.length);
    EXPECT_EQ(fetch_->after(i).ids, after.ids);
    first += count;
  }
  // The same tokens cut elsewhere are others.
  std::swap(stretches[0], stretches[3]);
  ASSERT_TRUE(fetch_->Begin(tokens, NoImage(tokens), stretches).ok());
  EXPECT_GT(lookups(), asked);
}

// The first layer has its rows while the second table still stands.
TEST_F(EngramFetchTest, TheFirstLayerDoesNotWaitForTheSecondTable) {
  Open();
  const auto tokens = Tokens(kChunk, 7);
  gates_[1]->Close();
  ASSERT_TRUE(Begin(tokens).ok());
  const auto first = TakeAll(0, tokens.size());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, Want(0, tokens));
  gates_[1]->Open();
  const auto second = TakeAll(1, tokens.size());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*second, Want(1, tokens));
}

TEST_F(EngramFetchTest, ABrokenRowIsNamedAndTheNextChunkIsRight) {
  const auto tokens = Tokens(30, 8);
  const uint64_t broken = RowsOf(1, tokens).back();
  tables_[1].SetByte(broken, 3, 0x7f);  // no row that opening samples
  Open();
  ASSERT_TRUE(Begin(tokens).ok());
  EXPECT_TRUE(TakeAll(0, tokens.size()).ok());
  const Status status = TakeAll(1, tokens.size()).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("table 3"), std::string::npos);
  EXPECT_NE(status.message().find("row " + std::to_string(broken)),
            std::string::npos)
      << status.message();
  fetch_->Cancel();
  ExpectRightRows(Tokens(5, 50));  // none of them reads that row
}

TEST_F(EngramFetchTest, CancelDropsWhatIsHeldUp) {
  Open();
  gates_[0]->Close();
  gates_[1]->Close();
  ASSERT_TRUE(Begin(Tokens(100, 9)).ok());
  ASSERT_TRUE(Ahead(Tokens(100, 10), fetch_->after(0)).ok());
  gates_[0]->Open();
  gates_[1]->Open();
  fetch_->Cancel();
  ExpectRightRows(Tokens(kChunk, 11));
}

TEST_F(EngramFetchTest, CountsWhatItAskedForAndStoodStillFor) {
  Open();
  ExpectRightRows(Tokens(50, 12));
  EXPECT_EQ(fetch_->stats().engram_rows, 50 * columns() * 2);
  EXPECT_EQ(fetch_->stats().engram_token_wait.count(), 0u);
  ExpectRightRows(Tokens(1, 13));
  ExpectRightRows(Tokens(1, 14));
  const SessionStats& stats = fetch_->stats();
  EXPECT_EQ(stats.engram_rows, 52 * columns() * 2);
  EXPECT_EQ(stats.engram_token_wait.count(), 2u);
  EXPECT_EQ(stats.engram_token_read.count(), 2u);
  EXPECT_GT(stats.engram_wait_seconds, 0);
  EXPECT_GT(stats.engram_rows_read, 0u);
}

TEST_F(EngramFetchTest, UnknownTokensAskForNothing) {
  Open();
  const std::vector<int32_t> tokens = {1, kVocab};
  EXPECT_EQ(Ahead(tokens).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Begin(tokens).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(lookups(), 0u);
}

}  // namespace
}  // namespace ecphory
