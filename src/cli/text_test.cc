// The small pure parts of the tool: suggestions, sizes, UTF-8, token lists.
#include <gtest/gtest.h>

#include "exit_code.h"
#include "help.h"
#include "sizes.h"
#include "suggest.h"
#include "token_input.h"
#include "utf8.h"

namespace ecphory::cli {
namespace {

TEST(SuggestTest, EditDistance) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("--temp", "--temp"), 0u);
  EXPECT_EQ(EditDistance("--tmep", "--temp"), 1u);  // a swap is one step
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(SuggestTest, NearestOrNone) {
  const std::vector<std::string> known = {"--temp", "--top-k", "--threads"};
  EXPECT_EQ(Nearest("--tmep", known), "--temp");
  EXPECT_EQ(Nearest("--thread", known), "--threads");
  EXPECT_EQ(Nearest("--topk", known), "--top-k");
  EXPECT_EQ(Nearest("--quantum", known), "");
  EXPECT_EQ(Nearest("--temp", {}), "");
  EXPECT_EQ(Nearest("-m", {"-h", "-o"}), "");
}

TEST(SizesTest, AsPeopleReadThem) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1000), "1.0 kB");
  EXPECT_EQ(HumanBytes(39214080), "39.2 MB");
  EXPECT_EQ(HumanBytes(763000000000), "763 GB");
  EXPECT_EQ(HumanCount(12345678), "12.3 M");
  EXPECT_EQ(HumanRate(0), "0.00");
  EXPECT_EQ(HumanRate(0.167), "0.17");
  EXPECT_EQ(HumanRate(0.996), "1.0");
  EXPECT_EQ(HumanRate(99.94), "99.9");
  EXPECT_EQ(HumanRate(99.96), "100");
  EXPECT_EQ(HumanRate(1311.6), "1312");
}

TEST(HelpTest, LinesAreWrappedAtBlanks) {
  EXPECT_EQ(WrapLines("", 10), "");
  EXPECT_EQ(WrapLines("one two", 7), "one two");
  EXPECT_EQ(WrapLines("one two three", 7), "one two\nthree");
  EXPECT_EQ(WrapLines("a seventeen-letters b", 5), "a\nseventeen-letters\nb");
}

TEST(Utf8Test, OneLineShowsWhatIsNoText) {
  EXPECT_EQ(OneLine("plain, \xC3\xA9 and \xE2\x82\xAC"),
            "plain, \xC3\xA9 and \xE2\x82\xAC");
  EXPECT_EQ(OneLine("a\nb\t\x7F"), "a\\x0ab\\x09\\x7f");
  EXPECT_EQ(OneLine("\x1B[31m"), "\\x1b[31m");
  EXPECT_EQ(OneLine("\xC2\x9B"
                    "2J"),
            "\\xc2\\x9b2J");  // C1 control
  EXPECT_EQ(OneLine("\xE2\x80\xAE"
                    "x"),
            "\\xe2\\x80\\xaex");
  EXPECT_EQ(OneLine("\xFF\xC3"), "\\xff\\xc3");
}

TEST(Utf8Test, WellFormedOrNot) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  for (const char* bad :
       {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",
        "\xF0\x80\x80\xAF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
        "\xE2\x82"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(TokenListTest, Parses) {
  EXPECT_EQ(*ParseTokenList("1,2,3"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(*ParseTokenList("7"), (std::vector<int32_t>{7}));
  EXPECT_EQ(*ParseTokenList("1, 2"), (std::vector<int32_t>{1, 2}));
  // Out of every vocabulary, but the model says so.
  EXPECT_EQ(*ParseTokenList("-1,-2147483648"),
            (std::vector<int32_t>{-1, INT32_MIN}));
}

TEST(TokenListTest, RefusesByItem) {
  for (const char* bad : {"", ",", "1,", "1,,2", "a", "1 2", "1.5", "0x1"}) {
    EXPECT_EQ(ParseTokenList(bad).status().code(), StatusCode::kInvalidArgument)
        << bad;
  }
  for (const char* big : {"1,2147483648", "99999999999999999999"}) {
    EXPECT_EQ(ParseTokenList(big).status().code(), StatusCode::kOutOfRange)
        << big;
  }
  EXPECT_NE(ParseTokenList("1,x").status().message().find("item 1"),
            std::string::npos);
}

TEST(ExitCodeTest, AsDocumented) {
  EXPECT_EQ(ExitCode(StatusCode::kOk), 0);
  EXPECT_EQ(ExitCode(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(ExitCode(StatusCode::kNotFound), 3);
  EXPECT_EQ(ExitCode(StatusCode::kCorrupt), 4);
  EXPECT_EQ(ExitCode(StatusCode::kUnsupported), 5);
  EXPECT_EQ(ExitCode(StatusCode::kOutOfRange), 6);
  EXPECT_EQ(ExitCode(StatusCode::kResourceExhausted), 7);
  EXPECT_EQ(ExitCode(StatusCode::kIoError), 8);
  EXPECT_EQ(ExitCode(StatusCode::kDeviceError), 9);
  EXPECT_EQ(ExitCode(StatusCode::kInternal), 70);
  EXPECT_EQ(ExitCode(StatusCode::kCancelled), 130);
}

}  // namespace
}  // namespace ecphory::cli
