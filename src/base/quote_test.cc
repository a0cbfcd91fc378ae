#include "base/quote.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

TEST(Quote, LeavesPlainNamesAlone) {
  EXPECT_EQ(Quoted("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(Quoted(""), "''");
}

TEST(Quote, KeepsMessagesOnOneLine) {
  EXPECT_EQ(Quoted("a\nb"), "'a\\x0ab'");
  EXPECT_EQ(Quoted(std::string_view("\0\x1b\x7f\xff", 4)),
            "'\\x00\\x1b\\x7f\\xff'");
  EXPECT_EQ(Quoted("it's \\"), "'it\\x27s \\x5c'");
}

TEST(Quote, ShortensLongNames) {
  EXPECT_EQ(Quoted(std::string(96, 'x')), "'" + std::string(96, 'x') + "'");
  EXPECT_EQ(Quoted(std::string(1000, 'x')),
            "'" + std::string(96, 'x') + "'... (1000 bytes)");
}

}  // namespace
}  // namespace ecphory
