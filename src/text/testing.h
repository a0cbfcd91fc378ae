// Small vocabularies for the tests of this module.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ecphory/tokenizer.h"
#include "text/byte_alphabet.h"

namespace ecphory {

// The 256 byte tokens (id = byte value) and the DeepSeek split patterns.
inline TokenizerData ByteVocabulary() {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    data.tokens.push_back(BytesToAlphabet({&text, 1}));
  }
  data.split_patterns = Tokenizer::DeepSeekSplitPatterns();
  return data;
}

// Appends the merge of two tokens, given as plain text, and its result.
inline void AddMerge(const std::string& left, const std::string& right,
                     TokenizerData* data) {
  const std::string a = BytesToAlphabet(left);
  const std::string b = BytesToAlphabet(right);
  data->merges.push_back(a + " " + b);
  data->tokens.push_back(a + b);
}

inline void AddToken(const std::string& content, bool special,
                     TokenizerData* data, bool normalized = false) {
  data->added.push_back({static_cast<int32_t>(data->tokens.size()), content,
                         special, normalized});
  data->tokens.push_back(content);
}

inline Tokenizer MustLoad(TokenizerData data) {
  Result<Tokenizer> tokenizer = Tokenizer::FromData(std::move(data), "test");
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().ToString();
    std::abort();
  }
  return std::move(tokenizer).value();
}

// What each id stands for.
inline std::vector<std::string> Pieces(const Tokenizer& tokenizer,
                                       const std::string& text,
                                       const EncodeOptions& options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  std::vector<std::string> pieces;
  if (!ids.ok()) return pieces;
  for (const int32_t id : *ids) {
    pieces.emplace_back(tokenizer.TokenBytes(id));
  }
  return pieces;
}

}  // namespace ecphory
