#include "runtime/stop_matcher.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

std::string PushAll(StopMatcher& matcher, const std::string& text,
                    size_t piece) {
  std::string shown;
  for (size_t i = 0; i < text.size(); i += piece) {
    shown += matcher.Push(std::string_view(text).substr(i, piece));
  }
  return shown + matcher.Finish();
}

TEST(StopMatcherTest, WithoutStopsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("the E"), "the ");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("d"), "ENd");
  EXPECT_EQ(matcher.Push(" EN"), " ");
  EXPECT_EQ(matcher.Finish(), "EN");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcherTest, FindsAStopHoweverThePiecesFall) {
  for (size_t piece = 1; piece <= 12; ++piece) {
    StopMatcher matcher({"\n\n", "END"});
    EXPECT_EQ(PushAll(matcher, "one\ntwoEND three", piece), "one\ntwo")
        << piece;
    EXPECT_TRUE(matcher.matched());
    EXPECT_EQ(matcher.Push("more"), "");
  }
}

TEST(StopMatcherTest, EarliestStopWinsNotTheFirstGiven) {
  StopMatcher matcher({"bbb", "a"});
  EXPECT_EQ(matcher.Push("xxabbb"), "xx");
}

// The end "aab" of "aaab" begins the stop text although the match that began
// one character earlier failed.
TEST(StopMatcherTest, OverlappingBeginnings) {
  StopMatcher matcher({"aabc"});
  EXPECT_EQ(PushAll(matcher, "aaabcd", 1), "a");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcherTest, OneCharacterStopHoldsNothing) {
  StopMatcher matcher({"."});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Push("d.e"), "d");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace ecphory
