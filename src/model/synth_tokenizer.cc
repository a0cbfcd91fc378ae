// A vocabulary without training data, and the map of its ids.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "model/synth_presets.h"
#include "text/byte_alphabet.h"

namespace ecphory {

namespace {

using Json = nlohmann::json;

// Ids that the released vocabulary gives to ordinary tokens.
constexpr uint32_t kOrdinary = 128'000;

// All bytes, those of common English letters first.
std::array<char, 256> BytesByUse() {
  constexpr std::string_view kCommon = " etaoinshrdlcumwfgypbvkjxqz";
  std::array<char, 256> order{};
  size_t count = 0;
  for (const char c : kCommon) order[count++] = c;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (kCommon.find(c) == std::string_view::npos) order[count++] = c;
  }
  return order;
}

class Vocabulary {
 public:
  explicit Vocabulary(uint32_t size) : size_(size) {}

  void AddSpecial(const std::string& content) {
    const int32_t id = static_cast<int32_t>(data.tokens.size());
    data.added.push_back({id, content, /*special=*/true});
    data.tokens.push_back(content);
  }
  void AddByte(char byte) { data.tokens.push_back(Spelt({&byte, 1})); }

  // False once the ordinary ids are used up.
  bool AddMerge(std::string_view left, char right) {
    if (data.tokens.size() >= std::min(size_, kOrdinary)) return false;
    const std::string a = Spelt(left), b = Spelt({&right, 1});
    data.merges.push_back(a + " " + b);
    data.tokens.push_back(a + b);
    return true;
  }

  TokenizerData data;

 private:
  static std::string Spelt(std::string_view bytes) {
    return BytesToAlphabet(bytes);
  }
  const uint32_t size_;
};

// Pairs of bytes, those of common ones first: all pairs of the first n + 1
// bytes come before any of the next.
std::vector<std::string> Pairs(const std::array<char, 256>& bytes) {
  std::vector<std::string> pairs;
  for (size_t n = 0; n < bytes.size(); ++n) {
    for (size_t i = 0; i <= n; ++i) {
      pairs.push_back({bytes[i], bytes[n]});
      if (i < n) pairs.push_back({bytes[n], bytes[i]});
    }
  }
  return pairs;
}

// Every pair, then pairs followed by a common letter.
void AddMerges(Vocabulary* vocabulary) {
  constexpr size_t kLetters = 27;
  const auto bytes = BytesByUse();
  const std::vector<std::string> pairs = Pairs(bytes);
  for (const std::string& pair : pairs) {
    if (!vocabulary->AddMerge(pair.substr(0, 1), pair[1])) return;
  }
  for (const std::string& pair : pairs) {
    for (size_t i = 0; i < kLetters; ++i) {
      if (!vocabulary->AddMerge(pair, bytes[i])) return;
    }
  }
}

Json SplitJson(const std::string& pattern) {
  return Json{{"type", "Split"},
              {"pattern", {{"Regex", pattern}}},
              {"behavior", "Isolated"},
              {"invert", false}};
}

}  // namespace

TokenizerData SynthTokenizer(uint32_t size) {
  Vocabulary vocabulary(size);
  vocabulary.AddSpecial("<｜begin▁of▁sentence｜>");
  vocabulary.AddSpecial("<｜end▁of▁sentence｜>");
  vocabulary.AddSpecial("<｜▁pad▁｜>");
  for (const char byte : BytesByUse()) vocabulary.AddByte(byte);
  AddMerges(&vocabulary);
  for (uint32_t n = 0; vocabulary.data.tokens.size() < size; ++n) {
    vocabulary.AddSpecial("<｜place▁holder▁no▁" + std::to_string(n) + "｜>");
  }
  TokenizerData& data = vocabulary.data;
  data.split_patterns = Tokenizer::DeepSeekSplitPatterns();
  data.bos_id = 0;
  data.eos_id = 1;
  data.add_bos = true;
  return std::move(data);
}

std::string SynthTokenizerJson(const TokenizerData& data) {
  Json added = Json::array();
  for (const TokenizerData::AddedToken& token : data.added) {
    added.push_back(Json{{"id", token.id},
                         {"content", token.content},
                         {"special", token.special},
                         {"normalized", token.normalized}});
  }
  Json stages = Json::array();
  for (const std::string& pattern : data.split_patterns) {
    stages.push_back(SplitJson(pattern));
  }
  stages.push_back(Json{{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"use_regex", false}});
  Json vocab = Json::object();
  for (size_t id = 0; id < data.tokens.size(); ++id)
    vocab[data.tokens[id]] = id;
  const Json document{
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", std::move(vocab)},
        {"merges", data.merges}}}};
  return document.dump();
}

std::vector<int32_t> SynthTokenMap(uint32_t size, uint32_t classes) {
  std::vector<int32_t> map(size);
  for (uint32_t id = 0; id < size; ++id) {
    map[id] = static_cast<int32_t>(id % classes);
  }
  return map;
}

}  // namespace ecphory
