#include "ecphory/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/testing.h"

namespace ecphory {
namespace {

using Strings = std::vector<std::string>;

// Bytes, a few merges, and added tokens of both kinds.
TokenizerData SmallVocabulary() {
  TokenizerData data = ByteVocabulary();
  AddMerge("h", "e", &data);
  AddMerge(" ", "he", &data);
  AddMerge("a", "a", &data);
  AddToken("<|bos|>", true, &data);
  AddToken("<|user|>", false, &data);
  data.bos_id = data.added[0].id;
  return data;
}

void ExpectRoundTrip(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text);
  ASSERT_TRUE(ids.ok()) << ids.status().ToString();
  const auto back = tokenizer.Decode(*ids);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  ASSERT_TRUE(*back == text) << text.size() << " bytes";
}

TEST(TokenizerTest, EncodesWordsByMerges) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  EXPECT_EQ(Pieces(tokenizer, "he hers"), (Strings{"he", " he", "r", "s"}));
  EXPECT_EQ(Pieces(tokenizer, ""), Strings{});
  EXPECT_EQ(Pieces(tokenizer, "  he"), (Strings{" ", " he"}));
}

TEST(TokenizerTest, SpecialTokensInUserTextAreOrdinary) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  EXPECT_EQ(Pieces(tokenizer, "a<|bos|>").size(), 8u);
  EXPECT_EQ(Pieces(tokenizer, "a<|bos|>", {.parse_special = true}),
            (Strings{"a", "<|bos|>"}));
}

TEST(TokenizerTest, OtherAddedTokensAreAlwaysFound) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  EXPECT_EQ(Pieces(tokenizer, "<|user|>he<|user|><|use"),
            (Strings{"<|user|>", "he", "<|user|>", "<", "|", "u", "s", "e"}));
}

TEST(TokenizerTest, AddedTokensLeftmostThenLongest) {
  TokenizerData data = ByteVocabulary();
  for (const char* token : {"ab", "abcd", "bcde", "b!"}) {
    AddToken(token, false, &data);
  }
  const Tokenizer tokenizer = MustLoad(data);
  EXPECT_EQ(Pieces(tokenizer, "abcde"), (Strings{"abcd", "e"}));
  EXPECT_EQ(Pieces(tokenizer, "abcxb!"), (Strings{"ab", "c", "x", "b!"}));
  EXPECT_EQ(Pieces(tokenizer, "bcdab"), (Strings{"b", "c", "d", "ab"}));
}

// As in the reference: such a token hides what overlaps it, found or not.
TEST(TokenizerTest, UnparsedSpecialTokenShadowsShorterOnes) {
  TokenizerData data = ByteVocabulary();
  AddToken("<x>", false, &data);
  AddToken("<x>y", true, &data);
  const Tokenizer tokenizer = MustLoad(data);
  EXPECT_EQ(Pieces(tokenizer, "<x>y").size(), 4u);
  EXPECT_EQ(Pieces(tokenizer, "<x>z"), (Strings{"<x>", "z"}));
}

TEST(TokenizerTest, NormalizedAddedTokensComeSecond) {
  TokenizerData data = ByteVocabulary();
  AddToken("abc", false, &data, /*normalized=*/true);
  AddToken("cd", false, &data);
  const Tokenizer tokenizer = MustLoad(data);
  EXPECT_EQ(Pieces(tokenizer, "abcd"), (Strings{"a", "b", "cd"}));
  EXPECT_EQ(Pieces(tokenizer, "abc"), (Strings{"abc"}));
}

TEST(TokenizerTest, AddBos) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  EXPECT_EQ(Pieces(tokenizer, "a", {.add_bos = true}),
            (Strings{"<|bos|>", "a"}));
  const Tokenizer without = MustLoad(ByteVocabulary());
  EXPECT_EQ(Pieces(without, "a", {.add_bos = true}), (Strings{"a"}));
}

TEST(TokenizerTest, DecodeSkipsSpecialOnRequest) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  const std::vector<int32_t> ids = {259, 'a', 260};
  EXPECT_EQ(*tokenizer.Decode(ids), "<|bos|>a<|user|>");
  EXPECT_EQ(*tokenizer.Decode(ids, /*skip_special=*/true), "a<|user|>");
}

TEST(TokenizerTest, DecodeNamesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  for (const int32_t id : {-1, 261, INT32_MIN, INT32_MAX}) {
    const auto text = tokenizer.Decode({'a', id});
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.status().code(), StatusCode::kOutOfRange);
    EXPECT_NE(text.status().message().find(std::to_string(id)),
              std::string::npos);
    EXPECT_EQ(tokenizer.TokenBytes(id), "");
    EXPECT_EQ(tokenizer.TokenString(id), "");
    EXPECT_FALSE(tokenizer.IsSpecial(id));
  }
}

TEST(TokenizerTest, LooksUpTokens) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  EXPECT_EQ(tokenizer.vocab_size(), 261u);
  EXPECT_EQ(tokenizer.FindToken("\u0120he"), 257);
  EXPECT_EQ(tokenizer.FindToken(" he"), -1);
  EXPECT_EQ(tokenizer.FindToken(""), -1);
  EXPECT_EQ(tokenizer.TokenBytes(257), " he");
  EXPECT_EQ(tokenizer.TokenString(257), "\u0120he");
  EXPECT_TRUE(tokenizer.IsSpecial(259));
  EXPECT_FALSE(tokenizer.IsSpecial(260));
}

TEST(TokenizerTest, RoundTripOfRandomBytes) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (size_t n = random() % 200; n > 0; --n) {
      text +=
          static_cast<char>(i % 2 ? random() : "ah\xe4\xb8 \xf0"[random() % 6]);
    }
    ExpectRoundTrip(tokenizer, text);
  }
}

TEST(TokenizerTest, RoundTripOfBrokenText) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  for (const char* text : {
           "\xed\xa0\x80",
           "\xed\xb0\x80 he",  // lone surrogates
           "he\xf0\x9f\x98",
           "\xe4\xb8he",
           "\xc3",  // cut characters
           "\xff\xfe\xff",
           "\x80\x80",
           " \xff ",
           "\xef\xbf\xbd\xff",
           "<|user|>\xff<|user|>\xf0",
       }) {
    ExpectRoundTrip(tokenizer, text);
  }
}

TEST(TokenizerTest, InvalidBytesSplitLikeReplacementCharacters) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  // U+FFFD is a symbol: it takes the space before it, not the word after it.
  EXPECT_EQ(Pieces(tokenizer,
                   "he \xff"
                   "he"),
            (Strings{"he", " ", "\xff", "he"}));
}

TEST(TokenizerTest, RoundTripOfLongRuns) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  const size_t n = 1 << 20;
  for (const char c : {'a', ' ', '\n', '\xff', '\0'}) {
    ExpectRoundTrip(tokenizer, std::string(n, c));
  }
  std::string mixed;
  for (size_t i = 0; i < n / 8; ++i) mixed += "\r\n \u00a0\u3000";
  ExpectRoundTrip(tokenizer, mixed);
}

TEST(TokenizerTest, RefusesWordsBeyondItsMemory) {
  const Tokenizer tokenizer = MustLoad(SmallVocabulary());
  const auto ids = tokenizer.Encode(std::string((1 << 24) + 1, 'a'));
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kResourceExhausted);
}

struct BadData {
  const char* what;  // in the message
  void (*break_it)(TokenizerData* data);
};

class BadDataTest : public testing::TestWithParam<BadData> {};

TEST_P(BadDataTest, IsRefusedByName) {
  TokenizerData data = SmallVocabulary();
  GetParam().break_it(&data);
  const auto tokenizer = Tokenizer::FromData(data, "vocab.gguf");
  ASSERT_FALSE(tokenizer.ok());
  const std::string message = tokenizer.status().ToString();
  EXPECT_NE(message.find("vocab.gguf: "), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().what), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadDataTest,
    testing::Values(
        BadData{"0 tokens", [](TokenizerData* d) { *d = {}; }},
        BadData{"byte 0x41", [](TokenizerData* d) { d->tokens['A'] = "AAA"; }},
        BadData{"byte 0x41",
                [](TokenizerData* d) {
                  d->added.push_back({'A', "A", true, false});
                }},
        BadData{"tokens 66 and 67 are both 'B'",
                [](TokenizerData* d) { d->tokens['C'] = d->tokens['B']; }},
        BadData{"token 5 is 5000 bytes",
                [](TokenizerData* d) { d->tokens[5].assign(5000, 'x'); }},
        BadData{"'zz' is not in the vocabulary",
                [](TokenizerData* d) { d->merges.push_back("zz a"); }},
        BadData{"'zz' is not in the vocabulary",
                [](TokenizerData* d) { d->merges.push_back("a zz"); }},
        BadData{"'ab' is not in the vocabulary",
                [](TokenizerData* d) { d->merges.push_back("a b"); }},
        BadData{"merge 3 'a a': the pair has a merge already",
                [](TokenizerData* d) { d->merges.push_back("a a"); }},
        BadData{"one space", [](TokenizerData* d) { d->merges[0] = "he"; }},
        BadData{"one space", [](TokenizerData* d) { d->merges[0] = "h e r"; }},
        BadData{"is not in the vocabulary",
                [](TokenizerData* d) { d->merges[0] = " h"; }},
        BadData{"builds a special token",
                [](TokenizerData* d) {
                  AddToken("xy", true, d);
                  d->merges.push_back("x y");
                }},
        BadData{"added token 261",
                [](TokenizerData* d) {
                  d->added.push_back({261, "q", false, false});
                }},
        BadData{"added token -1",
                [](TokenizerData* d) {
                  d->added.push_back({-1, "q", false, false});
                }},
        BadData{"the vocabulary has '<|user|>' there",
                [](TokenizerData* d) { d->added[1].content += "x"; }},
        BadData{"is empty",
                [](TokenizerData* d) { d->added[1].content.clear(); }},
        BadData{"is listed twice",
                [](TokenizerData* d) { d->added.push_back(d->added[0]); }},
        BadData{"eos id 261", [](TokenizerData* d) { d->eos_id = 261; }},
        BadData{"eos id -2", [](TokenizerData* d) { d->eos_id = -2; }},
        BadData{"split pattern 3",
                [](TokenizerData* d) { d->split_patterns.push_back("("); }}));

TEST(AddedTokensFromTypesTest, ReadsGgufTypes) {
  TokenizerData data = ByteVocabulary();
  AddMerge("a", "b", &data);                         // 256, normal
  for (const char* token : {"<s>", "<u>", "<n>"}) {  // 257 ... 259
    data.tokens.push_back(token);
  }
  data.tokens.push_back("");  // 260, unused
  std::vector<int32_t> types(data.tokens.size(), 1);
  types[257] = 3;
  types[258] = 4;
  const auto added = AddedTokensFromTypes(data.tokens, data.merges, types);
  ASSERT_EQ(added.size(), 3u);
  EXPECT_EQ(added[0].id, 257);
  EXPECT_TRUE(added[0].special);
  EXPECT_EQ(added[1].id, 258);
  EXPECT_FALSE(added[1].special);
  EXPECT_EQ(added[2].content, "<n>");
  EXPECT_FALSE(added[2].special);
  data.added = added;
  EXPECT_EQ(Pieces(MustLoad(data), "ab<n>"), (Strings{"ab", "<n>"}));
}

}  // namespace
}  // namespace ecphory
