#include "text/added_tokens.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "text/byte_alphabet.h"

namespace ecphory {

using AddedToken = TokenizerData::AddedToken;

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) {
              return a.content < b.content;
            });
  for (const AddedToken& token : tokens_) {
    begins_token_[static_cast<uint8_t>(token.content[0])] = true;
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::Find(
    std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_token_[static_cast<uint8_t>(text[begin])]) continue;
    const size_t index = LongestPrefix(text.substr(begin));
    if (index == tokens_.size()) continue;
    const AddedToken& token = tokens_[index];
    return Match{begin, begin + token.content.size(), token.id, token.special};
  }
  return std::nullopt;
}

size_t AddedTokenMatcher::LongestPrefix(std::string_view text) const {
  // [first, last) holds the tokens that share the first `depth` bytes with the
  // text; the one that ends there, if any, sorts first.
  size_t longest = tokens_.size();
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; depth < text.size(); ++depth) {
    const auto byte_at = [depth](const AddedToken& token) {
      return static_cast<uint8_t>(token.content[depth]);
    };
    const auto byte = static_cast<uint8_t>(text[depth]);
    first = std::partition_point(
        first, last, [&](const AddedToken& t) { return byte_at(t) < byte; });
    last = std::partition_point(
        first, last, [&](const AddedToken& t) { return byte_at(t) == byte; });
    if (first == last) break;
    if (first->content.size() == depth + 1) {
      longest = static_cast<size_t>(first - tokens_.begin());
      if (++first == last) break;
    }
  }
  return longest;
}

namespace {

constexpr int32_t kGgufNormal = 1;
constexpr int32_t kGgufControl = 3;
constexpr int32_t kGgufUserDefined = 4;

std::unordered_set<std::string> MergeResults(
    const std::vector<std::string>& merges) {
  std::unordered_set<std::string> results;
  results.reserve(merges.size());
  for (std::string merge : merges) {
    const size_t space = merge.find(' ');
    if (space != std::string::npos) merge.erase(space, 1);
    results.insert(std::move(merge));
  }
  return results;
}

bool IsOneByte(const std::string& token) {
  const std::optional<std::string> bytes = AlphabetToBytes(token);
  return bytes && bytes->size() == 1;
}

}  // namespace

std::vector<AddedToken> AddedTokensFromTypes(
    const std::vector<std::string>& tokens,
    const std::vector<std::string>& merges, const std::vector<int32_t>& types) {
  const std::unordered_set<std::string> merged = MergeResults(merges);
  std::vector<AddedToken> added;
  for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id) {
    const std::string& token = tokens[id];
    const bool special = types[id] == kGgufControl;
    const bool unreachable = types[id] == kGgufNormal && !token.empty() &&
                             merged.count(token) == 0 && !IsOneByte(token);
    if (special || types[id] == kGgufUserDefined || unreachable) {
      added.push_back({static_cast<int32_t>(id), token, special, false});
    }
  }
  return added;
}

}  // namespace ecphory
