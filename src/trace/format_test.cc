#include "trace/format.h"

#include <gtest/gtest.h>

namespace ecphory::trace {
namespace {

TEST(FormatTest, GroupsDigits) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(384006168), "384,006,168");
}

TEST(FormatTest, QuotesWhatALineCannotHold) {
  EXPECT_EQ(QuotePiece(" a\"b\\"), "\" a\\\"b\\\\\"");
  EXPECT_EQ(QuotePiece("\n\t\x01\x7f"), "\"\\n\\t\\x01\\x7f\"");
  EXPECT_EQ(QuotePiece("\xe2\x82"), "\"\\xe2\\x82\"");
  EXPECT_EQ(QuotePiece("\xe2\x80\xae"), "\"\\xe2\\x80\\xae\"");  // turns text
  EXPECT_EQ(QuotePiece("\xe2\x82\xac"), "\"\xe2\x82\xac\"");
}

TEST(FormatTest, EscapesMarkup) {
  EXPECT_EQ(EscapeHtml("<a b=\"c\" d='e'>&"),
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
  EXPECT_EQ(EscapeHtml(std::string("\0\x1b\x7f", 3)),
            "&#x2400;&#x241b;&#x2421;");
  EXPECT_EQ(EscapeHtml("\xff\xe2\x80\xae"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(EscapeHtml("a\n\tb"), "a\n\tb");
}

TEST(FormatTest, NoTagEndsAScript) {
  EXPECT_EQ(EscapeScript("\"</script><!--&\""),
            "\"\\u003c/script\\u003e\\u003c!--\\u0026\"");
}

TEST(FormatTest, FindsTheCharacterAroundItsBytes) {
  const std::string text =
      "a\xe2\x82\xac"
      "b\xf0\x9f\x99\x82";
  EXPECT_EQ(WholeCharacters(text, 1, 2), "\xe2\x82\xac");
  EXPECT_EQ(WholeCharacters(text, 3, 4), "\xe2\x82\xac");
  EXPECT_EQ(WholeCharacters(text, 3, 6),
            "\xe2\x82\xac"
            "b\xf0\x9f\x99\x82");
  EXPECT_EQ(WholeCharacters(text, 8, 9), "\xf0\x9f\x99\x82");
  EXPECT_EQ(WholeCharacters("\x82\x82", 0, 1), "");
  EXPECT_EQ(WholeCharacters("\xe2\x82", 1, 2), "");
}

TEST(FormatTest, WrapsBetweenItems) {
  EXPECT_EQ(WrapItems("ab ", {"cd", "ef", "gh"}, 9), "ab cd  ef\n   gh\n");
  EXPECT_EQ(WrapItems("", {"toolong"}, 3), "toolong\n");
}

TEST(FormatTest, WideAndCombiningCharacters) {
  EXPECT_EQ(DisplayWidth("abc"), 3u);
  EXPECT_EQ(DisplayWidth("\xe6\x97\xa5"), 2u);  // one ideograph
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1u);     // e and an acute accent
}

}  // namespace
}  // namespace ecphory::trace
