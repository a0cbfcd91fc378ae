// The merges of a byte-pair vocabulary, by pair and by rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ecphory/status.h"
#include "text/vocabulary.h"

namespace ecphory {

// Immutable and thread-safe after creation.
class MergeTable {
 public:
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };

  // Refuses vocabularies that lack one of the 256 byte tokens (they could not
  // encode every text) and merges of, or into, anything that is not in the
  // vocabulary. No merge may build a special token: plain text could reach it.
  static Result<MergeTable> Create(const Vocabulary& vocabulary,
                                   const std::string& where);

  int32_t ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }
  // Lower merges first; -1 when the two do not merge.
  int64_t Rank(int32_t left, int32_t right) const;
  const Merge& AtRank(uint32_t rank) const { return merges_[rank]; }

 private:
  Status AddByteTokens(const Vocabulary& vocabulary, const std::string& where);
  Status AddMerge(const Vocabulary& vocabulary, const std::string& text,
                  const std::string& where);

  std::array<int32_t, 256> byte_tokens_{};
  std::vector<Merge> merges_;  // by rank
  std::unordered_map<uint64_t, uint32_t> rank_of_pair_;
};

}  // namespace ecphory
