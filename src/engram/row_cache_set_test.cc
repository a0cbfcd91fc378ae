// Which row leaves a full set. Rows are numbers here and their own tags.
#include "engram/row_cache_set.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace ecphory::engram {
namespace {

class SetOfRows {
 public:
  // Whether row `row` (1..65535) was there; it is afterwards.
  bool Use(uint16_t row) {
    const uint32_t mask = set_->Match(row);
    if (mask != 0) {
      EXPECT_EQ(std::popcount(mask), 1);
      const auto way = static_cast<size_t>(std::countr_zero(mask));
      EXPECT_EQ(rows_[way], row);
      set_->Hit(way);
      return true;
    }
    bool evicted;
    const size_t way = set_->Admit(row, &evicted);
    EXPECT_EQ(evicted, rows_[way] != 0);
    rows_[way] = row;
    return false;
  }
  bool Has(uint16_t row) const { return set_->Match(row) != 0; }

 private:
  std::unique_ptr<RowCacheSet> set_{new RowCacheSet()};
  std::array<uint16_t, RowCacheSet::kWays> rows_{};
};

TEST(RowCacheSet, MatchesEveryTagInEveryPlace) {
  for (const uint16_t tag : {0x0002, 0x7fff, 0xc000, 0x8001, 0xfffe, 0xffff}) {
    auto set = std::make_unique<RowCacheSet>();
    bool evicted;
    for (size_t way = 0; way < RowCacheSet::kWays; ++way) {
      EXPECT_EQ(set->Match(tag), (1u << way) - 1);
      EXPECT_FALSE(set->Holds(way));
      EXPECT_EQ(set->Admit(tag, &evicted), way);
      EXPECT_FALSE(evicted);
      EXPECT_TRUE(set->Holds(way));
      EXPECT_EQ(set->Match(tag ^ 0x0001) | set->Match(tag ^ 0x8000), 0u)
          << "beyond empty places";
    }
  }
}

TEST(RowCacheSet, UnusedRowsLeaveInTheOrderTheyCame) {
  SetOfRows set;
  for (uint16_t row = 1; row <= 16; ++row) set.Use(row);
  for (uint16_t row = 17; row <= 40; ++row) {
    set.Use(row);
    EXPECT_FALSE(set.Has(static_cast<uint16_t>(row - 16)));
    EXPECT_TRUE(set.Has(static_cast<uint16_t>(row - 15)));
  }
}

TEST(RowCacheSet, AUsedRowStaysWhileOthersPassThrough) {
  SetOfRows set;
  set.Use(1);
  EXPECT_TRUE(set.Use(1));
  for (uint16_t row = 2; row <= 1000; ++row) set.Use(row);
  EXPECT_TRUE(set.Has(1));
  EXPECT_FALSE(set.Has(2));
}

TEST(RowCacheSet, TheMainPartIsNotPushedOutByNewcomers) {
  SetOfRows set;
  for (uint16_t row = 1; row <= 13; ++row) {
    set.Use(row);
    set.Use(row);
  }
  for (uint16_t row = 100; row <= 1000; ++row) set.Use(row);
  for (uint16_t row = 1; row <= 13; ++row) EXPECT_TRUE(set.Has(row)) << row;
}

// A row that left unused but is read again soon counts as one in use.
TEST(RowCacheSet, ARowThatReturnsSoonGoesToTheMainPart) {
  SetOfRows set;
  for (uint16_t row = 1; row <= 20; ++row) set.Use(row);
  EXPECT_FALSE(set.Use(1));
  for (uint16_t row = 100; row <= 112; ++row) set.Use(row);
  EXPECT_TRUE(set.Has(1));
  SetOfRows late;
  for (uint16_t row = 1; row <= 60; ++row) late.Use(row);
  EXPECT_FALSE(late.Use(1));
  for (uint16_t row = 100; row <= 115; ++row) late.Use(row);
  EXPECT_FALSE(late.Has(1)) << "32 rows left since";
}

// Three uses keep a row for three rounds, not for ever.
TEST(RowCacheSet, ARowNoLongerUsedLeaves) {
  SetOfRows set;
  for (int i = 0; i < 100; ++i) set.Use(1);
  bool left = false;
  for (uint16_t row = 2; row <= 200 && !left; ++row) {
    set.Use(row);
    set.Use(row);
    left = !set.Has(1);
  }
  EXPECT_TRUE(left);
}

}  // namespace
}  // namespace ecphory::engram
