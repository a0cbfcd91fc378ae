// The checked vocabulary: ids, strings, bytes and which tokens are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// Immutable and thread-safe after Load. Not movable: it holds views of itself.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // Takes over `data` and checks it. Once only.
  Status Load(TokenizerData data, const std::string& where);

  const TokenizerData& data() const { return data_; }
  size_t size() const { return data_.tokens.size(); }
  bool Contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < size();
  }

  // -1 when there is no such token.
  int32_t Find(std::string_view token) const;
  // What the token stands for in text; empty for ids outside the vocabulary.
  std::string_view Bytes(int32_t id) const;
  bool IsAdded(int32_t id) const;
  bool IsSpecial(int32_t id) const;

 private:
  enum class Kind : uint8_t { kOrdinary, kAdded, kSpecial };

  Status CheckCounts(const std::string& where) const;
  Status IndexTokens(const std::string& where);
  Status MarkAdded(const TokenizerData::AddedToken& token,
                   const std::string& where);
  void StoreBytes();

  TokenizerData data_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of data_.tokens
  std::vector<Kind> kinds_;
  std::string bytes_;         // of all tokens, in id order
  std::vector<size_t> ends_;  // of each token in bytes_
};

}  // namespace ecphory
