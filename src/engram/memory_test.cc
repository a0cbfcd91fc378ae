// The memory opened by itself, from every kind of file.
#include "engram/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engram/source_testing.h"

namespace ecphory::engram {
namespace {

const std::vector<int32_t> kTokens = {5, 45, 7, 63, 0, 2, 5, 45, 7};

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::string OpenError(const std::string& path,
                      const MemoryOptions& options = {}) {
  const auto memory = Memory::Open(path, options);
  return memory.ok() ? "opened" : memory.status().ToString();
}

class MemoryTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ / name; }

  // Rows are those of the layout, values those of the tables.
  void ExpectWorks(const std::string& path, const MemoryOptions& options) {
    const auto opened = Memory::Open(path, options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    Memory& memory = **opened;
    ASSERT_EQ(memory.tables(), 2u);
    ASSERT_EQ(memory.columns(), 4u);
    ASSERT_EQ(memory.width(), TestEngram::kWidth);
    EXPECT_EQ(memory.source().vocab_size, TestEngram::kVocab);
    const size_t count = kTokens.size() * memory.columns();
    std::vector<uint64_t> rows(2 * count);
    History history;
    ASSERT_TRUE(memory.Hash(kTokens, {}, &history, rows).ok());
    EXPECT_EQ(rows, PlainRows());
    std::vector<float> values(2 * count * memory.width());
    std::vector<LookupRequest> requests;
    for (size_t i = 0; i < 2; ++i) {
      requests.push_back({.table = i,
                          .rows = std::span(rows).subspan(i * count, count),
                          .out = values.data() + i * count * memory.width(),
                          .format = RowFormat::kF32});
    }
    std::vector<Ticket> tickets(2);
    memory.store().Submit(requests, tickets);
    for (const Ticket ticket : tickets) {
      ASSERT_TRUE(memory.store().Wait(ticket).ok());
    }
    EXPECT_EQ(values, PlainValues(rows));
  }

  // The same rows from the hasher by itself.
  std::vector<uint64_t> PlainRows() const {
    const Hasher hasher = Hasher::Create(test_.layout, test_.token_map,
                                         test_.token_map[TestEngram::kPadToken])
                              .value();
    std::vector<int32_t> ids(kTokens.size());
    EXPECT_TRUE(hasher.Compress(kTokens, {}, ids).ok());
    const size_t count = kTokens.size() * test_.layout.columns();
    std::vector<uint64_t> rows(2 * count);
    const std::vector<std::span<uint64_t>> places = {
        std::span(rows).first(count), std::span(rows).last(count)};
    History history;
    hasher.Hash(ids, &history, places);
    return rows;
  }

  std::vector<float> PlainValues(const std::vector<uint64_t>& rows) const {
    std::vector<float> values;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t table = i < rows.size() / 2 ? 0 : 1;
      const std::vector<float> row = test_.tables[table].Row(rows[i]);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }

  TestDirectory folder_;
  TestEngram test_;
};

TEST_F(MemoryTest, TableOnlyGguf) {
  test_.WriteGguf(Path("tables.gguf"));
  ExpectWorks(Path("tables.gguf"), {});
}

}  // namespace
}  // namespace ecphory::engram
