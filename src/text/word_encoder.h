// Byte-pair encoding of one word: the lowest-ranked pair merges first, the
// leftmost of equals, until no neighbours have a merge.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_table.h"

namespace ecphory {

// Encodes words one after another, reusing its memory and remembering words
// seen before. One thread; `table` must outlive it.
class WordEncoder {
 public:
  explicit WordEncoder(const MergeTable& table) : table_(table) {}

  // Appends the ids of `word`, whose bytes must stay in place as long as this
  // object lives. O(n log n) time, about 40 n bytes.
  void Encode(std::string_view word, std::vector<int32_t>* ids);

 private:
  // A part of the word; parts form a list. A merge leaves its result in the
  // left part and unlinks the right one (id kMerged).
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };
  struct Span {
    size_t begin;
    size_t count;
  };

  void Merge(std::string_view word);
  void LoadBytes(std::string_view word);
  // Queues the pair that begins at `position`, if it merges.
  void Offer(int32_t position);
  void Apply(uint32_t rank, int32_t position);
  uint64_t PopCandidate();

  const MergeTable& table_;
  std::vector<Symbol> symbols_;
  // Min-heap of rank << 32 | position; entries may be out of date.
  std::vector<uint64_t> candidates_;
  // Where in the output the ids of an earlier word lie.
  std::unordered_map<std::string_view, Span> seen_;
};

}  // namespace ecphory
