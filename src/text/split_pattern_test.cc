#include "text/split_pattern.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

std::string Translate(std::string_view pattern) {
  const Result<std::string> result = ToPcre2Pattern(pattern, "p");
  return result.ok() ? *result : result.status().ToString();
}

TEST(SplitPatternTest, KeepsWhatMeansTheSame) {
  for (const char* pattern :
       {"a|b", "[^\r\na-z]+", "(?:x|y)*?", "(?=a)(?!b)(?<=c)(?<!d)(?>e)(?i:f)",
        "a{3}b{1,}c{1,3}", "[(){}^$*.]", R"(\[\]\\\^\-\/\`)", R"(\r\n\t)",
        "[一-龥]+", "a++b*+c?+"}) {
    EXPECT_EQ(Translate(pattern), pattern);
  }
}

TEST(SplitPatternTest, SpellsOutWhiteSpace) {
  EXPECT_EQ(Translate(R"(\s+(?!\S))"),
            R"([\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}]))");
  EXPECT_EQ(Translate(R"([^\sa])"), R"([^\t-\r\x{85}\p{Z}a])");
}

TEST(SplitPatternTest, AddsCharactersOfNewerUnicode) {
  EXPECT_TRUE(Translate(R"(\p{L}+)").starts_with(R"([\p{L}\x{1C89}-)"));
  EXPECT_TRUE(Translate(R"(\P{Nd})").starts_with(R"([^\p{Nd}\x{10D40}-)"));
  EXPECT_TRUE(Translate(R"(\d)").starts_with(R"([\p{Nd}\x{10D40}-)"));
  EXPECT_EQ(Translate(R"([\p{Zs}])"), R"([\p{Zs}])");
}

TEST(SplitPatternTest, RefusesByName) {
  const struct {
    const char* pattern;
    const char* named;
  } rows[] = {
      {R"(\w+)", R"(byte 0: escape '\x5cw')"},
      {R"(a\b)", "byte 1: escape"},
      {R"(\h)", "escape"},
      {R"((a)\1)", "byte 3: escape"},
      {R"(\x41)", "escape"},
      {R"(\C)", "escape"},
      {"a\\", "'\\' at the end"},
      {"^a", "anchor"},
      {"a$", "anchor"},
      {R"(\p{Han})", "property"},
      {R"(\p{^L})", "property"},
      {R"(\pL)", "property"},
      {R"(\p{C})", "property"},
      {R"(\p{L)", "property"},
      {R"([\S])", "negated"},
      {R"([a\P{L}])", "negated"},
      {"[a[b]]", "'[' inside"},
      {"[a&&b]", "'&&' inside"},
      {"[]a]", "']' as the first"},
      {"[^]a]", "']' as the first"},
      {"[ab", "'[' without ']'"},
      {"(?R)", "group"},
      {"(?m:a)", "group"},
      {"(?<n>a)", "group"},
      {"(*UTF)a", "group"},
      {"a{,3}", "no repeat"},
      {"a{x}", "no repeat"},
      {"a{1", "no repeat"},
      {"a{2}+", "after a repeat"},
      {"a{2}?", "after a repeat"},
  };
  for (const auto& row : rows) {
    const std::string text = Translate(row.pattern);
    EXPECT_TRUE(text.starts_with("unsupported: p: byte ")) << text;
    EXPECT_NE(text.find(row.named), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ecphory
