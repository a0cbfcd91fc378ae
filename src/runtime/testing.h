// What the tests of generation share: golden model A, and a tokenizer for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "ecphory/model.h"
#include "ecphory/tokenizer.h"

namespace ecphory::testing {

// Character of the byte alphabet (GPT-2) that stands for `byte`, as UTF-8.
inline std::string ByteCharacter(int byte) {
  const auto printable = [](int b) {
    return (b > 32 && b < 127) || (b > 160 && b < 256 && b != 173);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// 512 tokens: the bytes, then pairs of letters.
inline Tokenizer SmallTokenizer(int32_t eos_id = -1) {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(ByteCharacter(byte));
  }
  for (int i = 0; i < 256; ++i) {
    data.tokens.push_back(
        {static_cast<char>('a' + i / 16), static_cast<char>('a' + i % 16)});
  }
  data.eos_id = eos_id;
  Result<Tokenizer> tokenizer = Tokenizer::FromData(std::move(data), "test");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *tokenizer;
}

inline Result<std::shared_ptr<const Model>> OpenGoldenModel(
    const char* backend) {
  ModelOptions options;
  options.threads = 1;
  options.backend = backend;
  return Model::Open(ECPHORY_TEST_DATA "/golden/v41/A", options);
}

inline std::shared_ptr<const Model> GoldenModel() {
  static const auto model = [] {
    auto opened = OpenGoldenModel("cpu");
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return *opened;
  }();
  return model;
}

// Null where there is no GPU.
inline std::shared_ptr<const Model> GoldenModelOnGpu() {
  auto opened = OpenGoldenModel("cuda");
  if (opened.status().code() == StatusCode::kUnsupported) return nullptr;
  EXPECT_TRUE(opened.ok()) << opened.status().ToString();
  return *opened;
}

}  // namespace ecphory::testing
