// Tokenizers from hostile files. Input that begins with '{' is a tokenizer.json
// up to the first NUL byte, then text for it. Any other input is a split
// pattern up to the first line feed, then text, for a vocabulary of bytes.
// Whatever loads must give every text back.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "ecphory/tokenizer.h"
#include "text/byte_alphabet.h"
#include "text/token_map.h"
#include "text/utf8.h"

namespace {

using ecphory::Result;
using ecphory::Tokenizer;

std::pair<std::string_view, std::string_view> Cut(std::string_view input,
                                                  char at) {
  const size_t end = std::min(input.find(at), input.size());
  return {input.substr(0, end), input.substr(std::min(end + 1, input.size()))};
}

Result<Tokenizer> FromPattern(std::string_view pattern) {
  ecphory::TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    data.tokens.push_back(ecphory::BytesToAlphabet({&text, 1}));
  }
  data.split_patterns.emplace_back(pattern);
  return Tokenizer::FromData(std::move(data), "fuzz");
}

void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view text,
                    bool parse_special) {
  ecphory::EncodeOptions options;
  options.parse_special = parse_special;
  const auto ids = tokenizer.Encode(text, options);
  if (!ids.ok()) return;  // a pattern that backtracks too long
  const auto back = tokenizer.Decode(*ids);
  if (!back.ok() || *back != text) std::abort();
  ecphory::StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  std::string streamed;
  for (const int32_t id : *ids) streamed += decoder.Push(id);
  streamed += decoder.Finish();
  if (streamed != ecphory::ReplaceInvalidUtf8(text)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool is_json = input.starts_with("{");
  const auto [source, text] = Cut(input, is_json ? '\0' : '\n');
  const auto tokenizer =
      is_json ? Tokenizer::FromJson(source, "fuzz") : FromPattern(source);
  if (!tokenizer.ok()) return 0;
  CheckRoundTrip(*tokenizer, text, false);
  CheckRoundTrip(*tokenizer, text, true);
  if (!ecphory::BuildTokenMap(*tokenizer).ok()) std::abort();
  return 0;
}
