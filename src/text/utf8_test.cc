#include "text/utf8.h"

#include <gtest/gtest.h>

#include <utf8proc.h>

namespace ecphory {
namespace {

using Kind = Utf8Step::Kind;

TEST(Utf8Test, ReadsEveryScalarValue) {
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    uint8_t bytes[4];
    const auto length = static_cast<size_t>(
        utf8proc_encode_char(static_cast<int32_t>(c), bytes));
    const std::string text(reinterpret_cast<const char*>(bytes), length);
    const Utf8Step step = NextUtf8(text + "x");
    ASSERT_EQ(step.kind, Kind::kCharacter) << c;
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, length);
    for (size_t cut = 1; cut < length; ++cut) {
      ASSERT_EQ(NextUtf8(text.substr(0, cut)).kind, Kind::kIncomplete) << c;
      ASSERT_EQ(NextUtf8(text.substr(0, cut) + "x").kind, Kind::kInvalid) << c;
    }
  }
}

TEST(Utf8Test, RefusesWhatIsNoCharacter) {
  for (const char* text : {
           "\x80",              // continuation alone
           "\xc0\x80",          // overlong NUL
           "\xc1\xbf",          // overlong two-byte form
           "\xe0\x9f\xbf",      // overlong three-byte form
           "\xf0\x8f\xbf\xbf",  // overlong four-byte form
           "\xed\xa0\x80",      // surrogate D800
           "\xed\xbf\xbf",      // surrogate DFFF
           "\xf4\x90\x80\x80",  // above U+10FFFF
           "\xf5\x80\x80\x80",
           "\xff",
           "\xfe",
       }) {
    EXPECT_EQ(NextUtf8(text).kind, Kind::kInvalid);
    EXPECT_EQ(NextUtf8(text).length, 1u);
  }
}

TEST(Utf8Test, ReplacesEachInvalidByte) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\x80z"), "a\xef\xbf\xbdz");
  EXPECT_EQ(ReplaceInvalidUtf8("\xf0\x9f\x98"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(ReplaceInvalidUtf8("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
}

TEST(Utf8Test, OriginalLengthsAddUp) {
  const std::string text =
      "\xff"
      "ab\xe4\xb8"
      "c\xef\xbf\xbd\x80";
  const ValidUtf8 valid(text);
  EXPECT_EQ(valid.OriginalLength(valid.text()), text.size());
  size_t sum = 0;
  for (std::string_view rest = valid.text(); !rest.empty();) {
    const size_t length = NextUtf8(rest).length;
    sum += valid.OriginalLength(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  EXPECT_EQ(sum, text.size());
}

}  // namespace
}  // namespace ecphory
