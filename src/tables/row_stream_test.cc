#include "tables/row_stream.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "engram/layout.h"

namespace ecphory::tables {
namespace {

using LayerRows = std::vector<std::vector<uint64_t>>;

engram::Hasher MakeHasher() {
  const auto layout = engram::DeriveLayout({{1, 4}, 3, 2, 500, 90});
  std::vector<int32_t> map(90);
  std::iota(map.begin(), map.end(), 0);
  return *engram::Hasher::Create(*layout, map, 2);
}

std::vector<int32_t> Text(size_t tokens) {
  std::vector<int32_t> ids(tokens);
  for (size_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(i * 7 % 90);
  return ids;
}

TEST(RowStream, RandomRowsLieInTheirColumns) {
  const engram::Hasher hasher = MakeHasher();
  const engram::Layout& layout = hasher.layout();
  const auto stream = RandomRows(layout, 5);
  LayerRows rows;
  std::set<uint64_t> distinct;
  stream->Next(200, &rows);
  ASSERT_EQ(rows.size(), 2u);
  for (size_t l = 0; l < 2; ++l) {
    ASSERT_EQ(rows[l].size(), 200 * layout.columns());
    for (size_t i = 0; i < rows[l].size(); ++i) {
      const size_t column = i % layout.columns();
      const uint64_t begin = layout.layers[l].offsets[column];
      ASSERT_GE(rows[l][i], begin);
      ASSERT_LT(rows[l][i], begin + layout.layers[l].primes[column]);
      distinct.insert(rows[l][i]);
    }
  }
  EXPECT_GT(distinct.size(), 500u);
}

TEST(RowStream, TextRowsAreTheHashersInPiecesOfAnySize) {
  const engram::Hasher hasher = MakeHasher();
  const std::vector<int32_t> ids = Text(100);
  std::vector<uint64_t> first(100 * 4), second(100 * 4);
  const std::span<uint64_t> parts[] = {first, second};
  engram::History history;
  hasher.Hash(ids, &history, parts);
  for (const size_t step : {1, 7, 100}) {
    auto stream = TextRows(hasher, ids);
    ASSERT_TRUE(stream.ok());
    std::vector<uint64_t> found;
    LayerRows rows;
    while (found.size() < second.size()) {
      (*stream)->Next(step, &rows);
      found.insert(found.end(), rows[1].begin(), rows[1].end());
    }
    found.resize(second.size());
    EXPECT_EQ(found, second) << step;
  }
}

TEST(RowStream, TextBeginsAgainAndSaysSo) {
  const engram::Hasher hasher = MakeHasher();
  auto stream = TextRows(hasher, Text(100));
  LayerRows rows;
  (*stream)->Next(100, &rows);
  EXPECT_EQ((*stream)->Describe(), "the rows of a text of 100 tokens");
  (*stream)->Next(250, &rows);
  EXPECT_EQ(rows[0].size(), 250u * 4);
  EXPECT_NE((*stream)->Describe().find("begun again 3 times"),
            std::string::npos);
}

TEST(RowStream, OneTokenRepeatedIsNoText) {
  const engram::Hasher hasher = MakeHasher();
  EXPECT_EQ(TextRows(hasher, std::vector<int32_t>(1000, 5)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(TextRows(hasher, Text(10)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(TextRows(hasher, std::vector<int32_t>(1000, 500)).status().code(),
            StatusCode::kOutOfRange);
}

TEST(RowStream, SequentialRowsFollowEachOther) {
  const engram::Hasher hasher = MakeHasher();
  const auto stream = SequentialRows(hasher.layout());
  LayerRows rows;
  stream->Next(1, &rows);
  EXPECT_EQ(rows[0], (std::vector<uint64_t>{0, 1, 2, 3}));
  stream->Next(1, &rows);
  EXPECT_EQ(rows[1], (std::vector<uint64_t>{4, 5, 6, 7}));
}

}  // namespace
}  // namespace ecphory::tables
