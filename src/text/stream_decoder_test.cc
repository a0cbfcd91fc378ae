#include <gtest/gtest.h>

#include <random>

#include "text/testing.h"
#include "text/utf8.h"

namespace ecphory {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

class StreamDecoderTest : public testing::Test {
 protected:
  static TokenizerData Data() {
    TokenizerData data = ByteVocabulary();
    AddToken("<|end|>", true, &data);    // 256
    AddToken("<|user|>", false, &data);  // 257
    return data;
  }
  // Pushes bytes one by one; the texts that came out, one per byte.
  std::vector<std::string> PushAll(std::string_view bytes) {
    std::vector<std::string> out;
    for (const char byte : bytes) {
      out.push_back(decoder_.Push(static_cast<uint8_t>(byte)));
    }
    return out;
  }
  StreamDecoder decoder_{MustLoad(Data())};
};

using Strings = std::vector<std::string>;

TEST_F(StreamDecoderTest, HoldsBackPartsOfACharacter) {
  EXPECT_EQ(PushAll("a\xf0\x9f\x98\x80z"),
            (Strings{"a", "", "", "", "\xf0\x9f\x98\x80", "z"}));
  EXPECT_EQ(decoder_.Finish(), "");
}

TEST_F(StreamDecoderTest, InvalidBytesComeAsSoonAsTheyAreKnown) {
  const std::string r = kReplacement;
  EXPECT_EQ(PushAll("\xff"), (Strings{r}));
  EXPECT_EQ(PushAll("\xe4\xb8z"), (Strings{"", "", r + r + "z"}));
  EXPECT_EQ(PushAll("\xed\xa0"), (Strings{"", r + r}));  // a surrogate
  EXPECT_EQ(PushAll("\xe4\xf0\x9f\x98\x80"),
            (Strings{"", r, "", "", "\xf0\x9f\x98\x80"}));
}

TEST_F(StreamDecoderTest, FinishReplacesWhatIsHeld) {
  PushAll("\xf0\x9f\x98");
  EXPECT_EQ(decoder_.Finish(),
            std::string(kReplacement) + kReplacement + kReplacement);
  EXPECT_EQ(decoder_.Finish(), "");
}

TEST_F(StreamDecoderTest, SpecialTokens) {
  EXPECT_EQ(decoder_.Push(256), "");
  EXPECT_EQ(decoder_.Push(257), "<|user|>");
  StreamDecoder all(MustLoad(Data()), /*skip_special=*/false);
  EXPECT_EQ(all.Push(256), "<|end|>");
}

TEST_F(StreamDecoderTest, UnknownIdsHaveNoText) {
  EXPECT_EQ(decoder_.Push(-1), "");
  EXPECT_EQ(decoder_.Push(258), "");
}

TEST_F(StreamDecoderTest, EqualsReplacingInTheWhole) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (size_t n = random() % 30; n > 0; --n) {
      bytes += "a\xf0\x9f\x98\x80\xe4\xb8\xad\xff\xed"[random() % 10];
    }
    std::string streamed;
    for (const std::string& text : PushAll(bytes)) streamed += text;
    ASSERT_EQ(streamed + decoder_.Finish(), ReplaceInvalidUtf8(bytes));
  }
}

}  // namespace
}  // namespace ecphory
