#include "text/splitter.h"

#include <gtest/gtest.h>

#include "ecphory/tokenizer.h"

namespace ecphory {
namespace {

using Words = std::vector<std::string>;

Result<Words> Split(const std::vector<std::string>& patterns,
                    std::string_view text) {
  ECPHORY_ASSIGN_OR_RETURN(const Splitter splitter,
                           Splitter::Create(patterns, "test"));
  Words words;
  const auto keep = [&words](std::string_view word) {
    words.emplace_back(word);
    return Status::Ok();
  };
  ECPHORY_RETURN_IF_ERROR(SplitRun(splitter).Split(text, keep));
  return words;
}

Words MustSplit(const std::vector<std::string>& patterns,
                std::string_view text) {
  Result<Words> words = Split(patterns, text);
  EXPECT_TRUE(words.ok()) << words.status().ToString();
  return words.ok() ? *words : Words{};
}

Words DeepSeek(std::string_view text) {
  return MustSplit(Tokenizer::DeepSeekSplitPatterns(), text);
}

TEST(SplitterTest, DeepSeekPatterns) {
  EXPECT_EQ(DeepSeek("The  cat's 12345 mice"),
            (Words{"The", " ", " cat", "'s", " ", "123", "45", " mice"}));
  EXPECT_EQ(DeepSeek("汉字かな和kana"), (Words{"汉字かな和", "kana"}));
  EXPECT_EQ(DeepSeek("a!!\n\nb"), (Words{"a", "!!\n\n", "b"}));
  EXPECT_EQ(DeepSeek("x \n y"), (Words{"x", " \n", " y"}));
  EXPECT_EQ(DeepSeek("e\u0301tude"), (Words{"e\u0301tude"}));
  EXPECT_EQ(DeepSeek("a\u00a0\u3000b"), (Words{"a", "\u00a0", "\u3000b"}));
  EXPECT_EQ(DeepSeek(""), Words{});
}

// U+180E is white space for PCRE2 and a format character for Unicode.
TEST(SplitterTest, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_EQ(DeepSeek("  \u180e"), (Words{" ", " ", "\u180e"}));
}

TEST(SplitterTest, KnowsCharactersNewerThanTheLibrary) {
  // U+1FAE8, a symbol of Unicode 15, does not join the word after it.
  EXPECT_EQ(DeepSeek("\U0001fae8a"), (Words{"\U0001fae8", "a"}));
  // U+10D40, a digit of Unicode 16.
  EXPECT_EQ(DeepSeek("a\U00010d40"), (Words{"a", "\U00010d40"}));
}

TEST(SplitterTest, WithoutPatternsTheTextIsOneWord) {
  EXPECT_EQ(MustSplit({}, "a b"), (Words{"a b"}));
}

TEST(SplitterTest, PatternsSeeTheirPieceOnly) {
  // Were the digit visible, (?!\S) would leave one space to it.
  EXPECT_EQ(MustSplit({"1", R"(\s+(?!\S)|\s+)"}, "  1"), (Words{"  ", "1"}));
}

TEST(SplitterTest, EmptyMatchesCutBetweenCharacters) {
  EXPECT_EQ(MustSplit({"b*"}, "aébba"), (Words{"a", "é", "bb", "a"}));
  EXPECT_EQ(MustSplit({"(?=b)"}, "abab"), (Words{"a", "ba", "b"}));
}

TEST(SplitterTest, FindsMatchesFarAway) {
  const std::string gap = std::string(1000, 'x') + "é";
  EXPECT_EQ(MustSplit({"1"}, gap + gap + "1" + gap),
            (Words{gap + gap, "1", gap}));
}

TEST(SplitterTest, EndlessBacktrackingIsAnError) {
  const std::string text(10'000, 'a');
  for (const char* pattern : {"(a+)+[bc]", "a*a*a*a*[bc]", "(?:a|a)*[bc]"}) {
    const Result<Words> words = Split({pattern}, text);
    ASSERT_FALSE(words.ok()) << pattern;
    EXPECT_EQ(words.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(words.status().message().find("split pattern 0"),
              std::string::npos);
  }
}

TEST(SplitterTest, LongRunsAreNoTrouble) {
  const size_t n = 1 << 20;
  EXPECT_EQ(DeepSeek(std::string(n, ' ')).size(), 1u);
  EXPECT_EQ(DeepSeek(std::string(n, ' ') + "x").size(), 2u);
  EXPECT_EQ(DeepSeek(std::string(n, '\n')).size(), 1u);
  EXPECT_EQ(DeepSeek(std::string(n, 'a')).size(), 1u);
  EXPECT_EQ(DeepSeek(std::string(n, '!')).size(), 1u);
  EXPECT_EQ(DeepSeek(std::string(n, '\0')).size(), 1u);
  EXPECT_EQ(DeepSeek(std::string(n, '7')).size(), (n + 2) / 3);
}

TEST(SplitterTest, RefusesBadPatterns) {
  EXPECT_EQ(Split({"a", "(b"}, "x").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(Split({""}, "x").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(Split({std::string(5000, 'a')}, "x").status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(Split(std::vector<std::string>(17, "a"), "x").status().code(),
            StatusCode::kUnsupported);
  EXPECT_NE(Split({"a", "(b"}, "x").status().message().find("split pattern 1"),
            std::string::npos);
}

}  // namespace
}  // namespace ecphory
