#include "text/word_encoder.h"

#include <algorithm>
#include <functional>

namespace ecphory {

namespace {

constexpr int32_t kNone = -1;
constexpr int32_t kMerged = -1;

// Words repeat, long ones hardly: 2^15 short words take about 3 MB.
constexpr size_t kMaxSeenWords = 1 << 15;
constexpr size_t kMaxSeenBytes = 64;

}  // namespace

void WordEncoder::Encode(std::string_view word, std::vector<int32_t>* ids) {
  if (const auto seen = seen_.find(word); seen != seen_.end()) {
    const Span span = seen->second;
    for (size_t i = 0; i < span.count; ++i) {
      ids->push_back((*ids)[span.begin + i]);
    }
    return;
  }
  const size_t begin = ids->size();
  Merge(word);
  for (const Symbol& symbol : symbols_) {
    if (symbol.id != kMerged) ids->push_back(symbol.id);
  }
  if (word.size() <= kMaxSeenBytes && seen_.size() < kMaxSeenWords) {
    seen_.emplace(word, Span{begin, ids->size() - begin});
  }
}

void WordEncoder::Merge(std::string_view word) {
  LoadBytes(word);
  candidates_.clear();
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) {
    Offer(static_cast<int32_t>(i));
  }
  while (!candidates_.empty()) {
    const uint64_t candidate = PopCandidate();
    Apply(static_cast<uint32_t>(candidate >> 32),
          static_cast<int32_t>(candidate & 0xffffffff));
  }
}

void WordEncoder::LoadBytes(std::string_view word) {
  const auto size = static_cast<int32_t>(word.size());
  symbols_.resize(word.size());
  for (int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(word[i]);
    symbols_[i] = {table_.ByteToken(byte), i - 1, i + 1 < size ? i + 1 : kNone};
  }
}

void WordEncoder::Offer(int32_t position) {
  const Symbol& left = symbols_[position];
  if (left.next == kNone) return;
  const int64_t rank = table_.Rank(left.id, symbols_[left.next].id);
  if (rank < 0) return;
  candidates_.push_back(static_cast<uint64_t>(rank) << 32 |
                        static_cast<uint32_t>(position));
  std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

uint64_t WordEncoder::PopCandidate() {
  std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  const uint64_t candidate = candidates_.back();
  candidates_.pop_back();
  return candidate;
}

void WordEncoder::Apply(uint32_t rank, int32_t position) {
  const MergeTable::Merge& merge = table_.AtRank(rank);
  Symbol& left = symbols_[position];
  if (left.id != merge.left || left.next == kNone) return;  // out of date
  Symbol& right = symbols_[left.next];
  if (right.id != merge.right) return;  // out of date
  left.id = merge.result;
  left.next = right.next;
  right.id = kMerged;
  if (left.next != kNone) symbols_[left.next].previous = position;
  if (left.previous != kNone) Offer(left.previous);
  Offer(position);
}

}  // namespace ecphory
