// tokenizer.ggml.* keys, well-formed and not.
#include <gtest/gtest.h>

#include <functional>

#include "model/source.h"
#include "model/test_models.h"
#include "text/gguf_tokenizer.h"

namespace ecphory {
namespace {

using testing::ExpectHas;

// The trainer's vocabulary, and behind it a token that no merge makes, as it
// comes from writers that mark only special tokens.
struct Keys {
  Keys() {
    const auto source = OpenModelSource(testing::TrainerDir());
    const TokenizerData& data = source->tokenizer->data();
    tokens = data.tokens;
    merges = data.merges;
    types.assign(tokens.size(), 1);
    for (const auto& added : data.added) {
      tokens[static_cast<size_t>(added.id)] = added.content;
      types[static_cast<size_t>(added.id)] = added.special ? 3 : 1;
    }
    known = data.added;
    tokens.push_back("never merged");
    types.push_back(1);
  }
  std::string model = "gpt2";
  std::string pre = "joyai-llm";
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::vector<TokenizerData::AddedToken> known;  // of the trainer's
  uint32_t bos = 0;
};

Result<std::optional<Tokenizer>> Read(const Keys& keys) {
  const TestDirectory folder;
  GgufWriter w(32);
  w.AddString("general.architecture", "deepseek41");
  w.AddString("tokenizer.ggml.model", keys.model);
  w.AddString("tokenizer.ggml.pre", keys.pre);
  w.AddStringArray("tokenizer.ggml.tokens", keys.tokens);
  w.AddInt32Array("tokenizer.ggml.token_type", keys.types);
  w.AddStringArray("tokenizer.ggml.merges", keys.merges);
  w.AddUint32("tokenizer.ggml.bos_token_id", keys.bos);
  w.AddBool("tokenizer.ggml.add_bos_token", true);
  EXPECT_TRUE(w.WriteTo(folder / "t.gguf", {}).ok());
  return ReadGgufTokenizer(testing::ParseGgufOrDie(folder / "t.gguf"));
}

std::string ErrorOf(const std::function<void(Keys*)>& change) {
  Keys keys;
  change(&keys);
  const auto tokenizer = Read(keys);
  return tokenizer.ok() ? "read" : tokenizer.status().message();
}

TEST(GgufTokenizer, AddedTokensAreRecognised) {
  const Keys keys;
  const auto read = Read(keys);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_TRUE(*read);
  const TokenizerData& data = (*read)->data();
  ASSERT_EQ(data.added.size(), keys.known.size() + 1);
  for (size_t i = 0; i < keys.known.size(); ++i) {
    EXPECT_EQ(data.added[i].content, keys.known[i].content);
    EXPECT_EQ(data.added[i].special, keys.known[i].special);
  }
  EXPECT_EQ(data.added.back().content, "never merged");
  EXPECT_FALSE(data.added.back().special);
  EXPECT_EQ(data.bos_id, 0);
  EXPECT_EQ(data.eos_id, -1);
  EXPECT_TRUE(data.add_bos);
}

TEST(GgufTokenizer, AbsentIsNoError) {
  const TestDirectory folder;
  GgufWriter w(32);
  w.AddString("general.architecture", "deepseek41");
  ASSERT_TRUE(w.WriteTo(folder / "t.gguf", {}).ok());
  const auto read =
      ReadGgufTokenizer(testing::ParseGgufOrDie(folder / "t.gguf"));
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(*read);
}

TEST(GgufTokenizer, WhatIsRefused) {
  ExpectHas(ErrorOf([](Keys* k) { k->model = "llama"; }),
            "tokenizer.ggml.model: found 'llama', expected gpt2");
  ExpectHas(ErrorOf([](Keys* k) { k->pre = "qwen2"; }),
            "tokenizer.ggml.pre: found 'qwen2', expected joyai-llm");
  ExpectHas(ErrorOf([](Keys* k) { k->types.pop_back(); }),
            "tokenizer.ggml.token_type: found 301 entries, expected 302");
  ExpectHas(ErrorOf([](Keys* k) { k->bos = 302; }),
            "tokenizer.ggml.bos_token_id: found 302, expected an id below 302");
}

}  // namespace
}  // namespace ecphory
