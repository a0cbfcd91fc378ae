#include "text/gguf_tokenizer.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/quote.h"

namespace ecphory {

namespace {

// GGUF's token types.
constexpr int64_t kNormal = 1;
constexpr int64_t kControl = 3;      // special
constexpr int64_t kUserDefined = 4;  // added, not special

Status CheckKind(const GgufFile& file, const std::string& key,
                 std::initializer_list<const char*> supported) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string found, file.GetString(key));
  std::string names;
  for (const char* name : supported) {
    if (found == name) return {};
    names += names.empty() ? name : std::string(" or ") + name;
  }
  return Unsupported("%s: %s: found %s, expected %s", file.path().c_str(),
                     key.c_str(), Quoted(found).c_str(), names.c_str());
}

// The strings that merges can produce.
std::unordered_set<std::string> MergeResults(
    const std::vector<std::string>& merges) {
  std::unordered_set<std::string> results;
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) continue;
    results.insert(merge.substr(0, space) + merge.substr(space + 1));
  }
  return results;
}

size_t CharacterCount(std::string_view utf8) {
  size_t count = 0;
  for (const char c : utf8) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

// Some writers give type 1 to added tokens that are not special. They stand out
// all the same: longer than one character of the byte alphabet, and no merge
// leads to them.
std::vector<TokenizerData::AddedToken> AddedTokens(
    const TokenizerData& data, const std::vector<int64_t>& types) {
  const auto reachable = MergeResults(data.merges);
  std::vector<TokenizerData::AddedToken> added;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    const bool hidden = types[id] == kNormal && CharacterCount(token) > 1 &&
                        reachable.count(token) == 0;
    if (types[id] != kControl && types[id] != kUserDefined && !hidden) continue;
    added.push_back({.id = static_cast<int32_t>(id),
                     .content = token,
                     .special = types[id] == kControl});
  }
  return added;
}

// -1 when the key is absent.
Result<int32_t> TokenId(const GgufFile& file, const std::string& key,
                        size_t vocab_size) {
  if (!file.Has(key)) return -1;
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t id, file.GetUint(key));
  if (id < vocab_size) return static_cast<int32_t>(id);
  return OutOfRange("%s: %s: found %llu, expected an id below %zu",
                    file.path().c_str(), key.c_str(),
                    static_cast<unsigned long long>(id), vocab_size);
}

Result<std::vector<int64_t>> TokenTypes(const GgufFile& file, size_t count) {
  const std::string key = "tokenizer.ggml.token_type";
  ECPHORY_ASSIGN_OR_RETURN(std::vector<int64_t> types, file.GetIntArray(key));
  if (types.size() == count) return types;
  return Corrupt("%s: %s: found %zu entries, expected %zu, one for each token",
                 file.path().c_str(), key.c_str(), types.size(), count);
}

Result<TokenizerData> ReadTokenizerData(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  ECPHORY_RETURN_IF_ERROR(CheckKind(file, prefix + "model", {"gpt2"}));
  // Two names of one pre-tokenizer.
  ECPHORY_RETURN_IF_ERROR(
      CheckKind(file, prefix + "pre", {"joyai-llm", "deepseek-v3"}));
  TokenizerData data;
  data.split_patterns = Tokenizer::DeepSeekSplitPatterns();
  ECPHORY_ASSIGN_OR_RETURN(data.tokens, file.GetStringArray(prefix + "tokens"));
  ECPHORY_ASSIGN_OR_RETURN(data.merges, file.GetStringArray(prefix + "merges"));
  const size_t count = data.tokens.size();
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                           TokenTypes(file, count));
  data.added = AddedTokens(data, types);
  ECPHORY_ASSIGN_OR_RETURN(data.bos_id,
                           TokenId(file, prefix + "bos_token_id", count));
  ECPHORY_ASSIGN_OR_RETURN(data.eos_id,
                           TokenId(file, prefix + "eos_token_id", count));
  if (file.Has(prefix + "add_bos_token")) {
    ECPHORY_ASSIGN_OR_RETURN(data.add_bos,
                             file.GetBool(prefix + "add_bos_token"));
  }
  return data;
}

}  // namespace

Result<std::optional<Tokenizer>> ReadGgufTokenizer(const GgufFile& file) {
  if (!file.Has("tokenizer.ggml.model")) return std::optional<Tokenizer>();
  ECPHORY_ASSIGN_OR_RETURN(TokenizerData data, ReadTokenizerData(file));
  ECPHORY_ASSIGN_OR_RETURN(Tokenizer tokenizer,
                           Tokenizer::FromData(std::move(data), file.path()));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

}  // namespace ecphory
