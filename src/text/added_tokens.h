// Finds added tokens in text before it is split into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ecphory/tokenizer.h"

namespace ecphory {

// Thread-safe after construction.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
    bool special;
  };

  // Contents must be distinct and not empty.
  explicit AddedTokenMatcher(std::vector<TokenizerData::AddedToken> tokens);

  // The leftmost match that begins at or after `from`, the longest of those.
  std::optional<Match> Find(std::string_view text, size_t from) const;

 private:
  // Index of the longest token that `text` begins with, or tokens_.size().
  size_t LongestPrefix(std::string_view text) const;

  std::vector<TokenizerData::AddedToken> tokens_;  // sorted by content
  bool begins_token_[256] = {};
};

}  // namespace ecphory
