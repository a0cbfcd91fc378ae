#include "text/token_map.h"

#include <gtest/gtest.h>

#include "text/testing.h"

namespace ecphory {
namespace {

std::string Normal(std::string_view text) {
  const Result<std::string> result = NormalizeForTokenMap(text);
  return result.ok() ? *result : result.status().ToString();
}

TEST(NormalizeForTokenMapTest, FoldsCaseAccentsAndForms) {
  EXPECT_EQ(Normal("The"), "the");
  EXPECT_EQ(Normal("Été"), "ete");
  EXPECT_EQ(Normal("ÅNGSTRÖM"), "angstrom");
  EXPECT_EQ(Normal("ﬁ"), "fi");
  EXPECT_EQ(Normal("Ａ１"), "a1");
  EXPECT_EQ(Normal("²"), "2");
  EXPECT_EQ(Normal("ß"), "ß");
  EXPECT_EQ(Normal("İ"), "i");      // the dot is a mark by then
  EXPECT_EQ(Normal("ΣΑΣ"), "σασ");  // no final-sigma rule
  EXPECT_EQ(Normal("ガ"), "カ");    // voicing is a mark
  EXPECT_EQ(Normal("한"), "\u1112\u1161\u11ab");
}

TEST(NormalizeForTokenMapTest, DropsAllMarks) {
  EXPECT_EQ(Normal("a\u0301"), "a");            // Mn
  EXPECT_EQ(Normal("\u0915\u093e"), "\u0915");  // Mc
  EXPECT_EQ(Normal("a\u20dd"), "a");            // Me
  EXPECT_EQ(Normal("\u0301"), "");
}

TEST(NormalizeForTokenMapTest, WhiteSpace) {
  EXPECT_EQ(Normal(" a  b\t\r\n c "), "a b c");
  EXPECT_EQ(Normal(" "), " ");
  EXPECT_EQ(Normal("\n\n\t"), " ");
  EXPECT_EQ(Normal("\u3000"), " ");  // NFKC makes it a space
  EXPECT_EQ(Normal("\u00a0 \u2003"), " ");
  EXPECT_EQ(Normal("\u2028"), "");  // no blank, so nothing is kept
  EXPECT_EQ(Normal("\x0b\x0c"), "");
  EXPECT_EQ(Normal(" \x0b"), "");
  EXPECT_EQ(Normal("a\u0301 \u0301 b"), "a b");  // blanks meet without the mark
  EXPECT_EQ(Normal(std::string_view("\0a", 2)), std::string_view("\0a", 2));
  EXPECT_EQ(Normal(""), "");
}

TEST(NormalizeForTokenMapTest, LongestDecomposition) {
  EXPECT_EQ(Normal("\ufdfa"),
            "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 "
            "\u0639\u0644\u064a\u0647 \u0648\u0633\u0644\u0645");
}

TEST(NormalizeForTokenMapTest, RefusesInvalidUtf8) {
  EXPECT_FALSE(NormalizeForTokenMap("\xff").ok());
}

std::vector<int32_t> MapOf(const std::vector<std::string>& texts) {
  TokenizerData data = ByteVocabulary();
  for (const std::string& text : texts) {
    data.tokens.push_back(BytesToAlphabet(text));
  }
  const Result<std::vector<int32_t>> map = BuildTokenMap(MustLoad(data));
  EXPECT_TRUE(map.ok());
  return {map->begin() + 256, map->end()};
}

TEST(BuildTokenMapTest, IdsInOrderOfFirstSight) {
  TokenizerData data = ByteVocabulary();
  const Result<std::vector<int32_t>> map = BuildTokenMap(MustLoad(data));
  ASSERT_TRUE(map.ok());
  // Control characters have no normal form but differ as they are, except that
  // tab, line feed and carriage return are one space.
  EXPECT_EQ((*map)[0], 0);
  EXPECT_EQ((*map)['\t'], 9);
  EXPECT_EQ((*map)['\n'], 9);
  EXPECT_EQ((*map)[0x0b], 10);
  EXPECT_EQ((*map)['\r'], 9);
  EXPECT_EQ((*map)[' '], 9);
  EXPECT_EQ((*map)['a'], (*map)['A']);
  // Bytes that are no UTF-8 keep their vocabulary string.
  EXPECT_NE((*map)[0xc3], (*map)[0xe3]);
}

TEST(BuildTokenMapTest, AlikeTokensShare) {
  const auto map = MapOf({"the", " The", "THE ", "thé", "t\u0301he"});
  EXPECT_EQ(map, std::vector<int32_t>(5, map[0]));
}

TEST(BuildTokenMapTest, WhatNormalisesToNothingStaysItself) {
  const auto map = MapOf({"\u0301", "\u0302", "\u2028", "\x0b\x0b", "  "});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(map[i], map[0] + int32_t(i));
  EXPECT_LT(map[4], map[0]);  // two spaces are one space, seen before
}

TEST(BuildTokenMapTest, PartialCharactersKeepTheirString) {
  const auto map =
      MapOf({"\xe4\xb8", " \xe4\xb8", "A\xff", "a\xff", "\ufffd", " \ufffd"});
  for (size_t i = 1; i < map.size(); ++i) EXPECT_EQ(map[i], map[i - 1] + 1);
}

TEST(BuildTokenMapTest, AddedTokensCountAsText) {
  TokenizerData data = ByteVocabulary();
  AddToken("<｜User｜>", false, &data);
  AddToken("<｜USER｜>", true, &data);
  const Result<std::vector<int32_t>> map = BuildTokenMap(MustLoad(data));
  ASSERT_TRUE(map.ok());
  EXPECT_EQ((*map)[256], (*map)[257]);
}

}  // namespace
}  // namespace ecphory
