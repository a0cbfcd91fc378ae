#include "text/word_encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/testing.h"

namespace ecphory {
namespace {

using Ids = std::vector<int32_t>;

struct Model {
  explicit Model(TokenizerData data) {
    const Status loaded = vocabulary.Load(std::move(data), "test");
    EXPECT_TRUE(loaded.ok()) << loaded.ToString();
    Result<MergeTable> made = MergeTable::Create(vocabulary, "test");
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    if (made.ok()) merges = std::move(made).value();
  }
  Ids Encode(std::string_view word) const {
    Ids ids;
    WordEncoder(merges).Encode(word, &ids);
    return ids;
  }
  Vocabulary vocabulary;
  MergeTable merges;
};

// The definition, word by word: merge the best pair, leftmost first, again.
Ids EncodeByDefinition(const MergeTable& merges, std::string_view word) {
  Ids ids;
  for (const char byte : word) {
    ids.push_back(merges.ByteToken(static_cast<uint8_t>(byte)));
  }
  for (;;) {
    int64_t best = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const int64_t rank = merges.Rank(ids[i], ids[i + 1]);
      if (rank >= 0 && (best < 0 || rank < best)) best = rank, at = i;
    }
    if (best < 0) return ids;
    ids[at] = merges.AtRank(static_cast<uint32_t>(best)).result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

// Random merges over three letters: many ways to the same token.
TokenizerData RandomMerges(std::mt19937* random) {
  TokenizerData data = ByteVocabulary();
  std::map<std::string, bool> known = {{"a", true}, {"b", true}, {"c", true}};
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::map<std::string, bool> pairs;
  while (data.merges.size() < 60) {
    const std::string& left = tokens[(*random)() % tokens.size()];
    const std::string& right = tokens[(*random)() % tokens.size()];
    const std::string pair = left + " " + right;
    if (left.size() + right.size() > 8 || !pairs.emplace(pair, true).second) {
      continue;
    }
    data.merges.push_back(pair);
    const std::string result = left + right;
    if (!known.emplace(result, true).second) continue;
    data.tokens.push_back(result);
    tokens.push_back(result);
  }
  return data;
}

TEST(WordEncoderTest, EqualsTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const Model model(RandomMerges(&random));
    WordEncoder encoder(model.merges);
    for (int i = 0; i < 100; ++i) {
      std::string word;
      for (size_t n = random() % 40; n > 0; --n) word += "abcd"[random() % 4];
      ASSERT_EQ(model.Encode(word), EncodeByDefinition(model.merges, word))
          << word;
    }
  }
}

TEST(WordEncoderTest, LeftmostOfEqualsFirst) {
  TokenizerData data = ByteVocabulary();
  AddMerge("a", "a", &data);
  const Model model(data);
  EXPECT_EQ(model.Encode("aaa"), (Ids{256, 'a'}));
}

TEST(WordEncoderTest, RepeatedWordsComeFromMemory) {
  TokenizerData data = ByteVocabulary();
  AddMerge("a", "b", &data);
  const Model model(data);
  WordEncoder encoder(model.merges);
  Ids ids;
  for (int i = 0; i < 3; ++i) encoder.Encode("abc", &ids);
  EXPECT_EQ(ids, (Ids{256, 'c', 256, 'c', 256, 'c'}));
}

TEST(WordEncoderTest, LongWord) {
  TokenizerData data = ByteVocabulary();
  std::string token = "a";
  for (int i = 0; i < 5; ++i, token += token) AddMerge(token, token, &data);
  const Model model(data);
  EXPECT_EQ(model.Encode(std::string(1 << 20, 'a')), Ids(1 << 15, 260));
}

}  // namespace
}  // namespace ecphory
