#include "text/merge_table.h"

#include "base/quote.h"
#include "text/byte_alphabet.h"

namespace ecphory {

namespace {

constexpr size_t kMaxMerges = 1 << 22;  // 32 times the released count

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 |
         static_cast<uint32_t>(right);
}

std::string Absent(std::string_view token) {
  return Quoted(token) + " is not in the vocabulary";
}

bool IsPair(std::string_view text) {
  const size_t space = text.find(' ');
  return space != std::string_view::npos && space == text.rfind(' ');
}

}  // namespace

Result<MergeTable> MergeTable::Create(const Vocabulary& vocabulary,
                                      const std::string& where) {
  const std::vector<std::string>& merges = vocabulary.data().merges;
  if (merges.size() > kMaxMerges) {
    return Unsupported("%s: %zu merges, at most %zu can be used", where.c_str(),
                       merges.size(), kMaxMerges);
  }
  MergeTable table;
  ECPHORY_RETURN_IF_ERROR(table.AddByteTokens(vocabulary, where));
  table.merges_.reserve(merges.size());
  table.rank_of_pair_.reserve(merges.size());
  for (const std::string& merge : merges) {
    ECPHORY_RETURN_IF_ERROR(table.AddMerge(vocabulary, merge, where));
  }
  return table;
}

Status MergeTable::AddByteTokens(const Vocabulary& vocabulary,
                                 const std::string& where) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const int32_t id = vocabulary.Find(BytesToAlphabet({&text, 1}));
    if (id < 0 || vocabulary.IsAdded(id)) {
      return Corrupt(
          "%s: the vocabulary has no ordinary token for byte 0x%02x; a "
          "byte-level vocabulary has all 256",
          where.c_str(), byte);
    }
    byte_tokens_[byte] = id;
  }
  return Status::Ok();
}

Status MergeTable::AddMerge(const Vocabulary& vocabulary,
                            const std::string& text, const std::string& where) {
  const auto rank = static_cast<uint32_t>(merges_.size());
  const auto wrong = [&](const std::string& why) {
    return Corrupt("%s: merge %u %s: %s", where.c_str(), rank,
                   Quoted(text).c_str(), why.c_str());
  };
  if (!IsPair(text)) {
    return wrong("expected two tokens with one space between them");
  }
  const size_t space = text.find(' ');
  const std::string parts[] = {text.substr(0, space), text.substr(space + 1)};
  const std::string result = parts[0] + parts[1];
  const Merge merge = {vocabulary.Find(parts[0]), vocabulary.Find(parts[1]),
                       vocabulary.Find(result)};
  if (merge.left < 0) return wrong(Absent(parts[0]));
  if (merge.right < 0) return wrong(Absent(parts[1]));
  if (merge.result < 0) return wrong(Absent(result));
  if (vocabulary.IsSpecial(merge.result)) {
    return wrong("builds a special token, which ordinary text must not");
  }
  if (!rank_of_pair_.emplace(PairKey(merge.left, merge.right), rank).second) {
    return wrong("the pair has a merge already");
  }
  merges_.push_back(merge);
  return Status::Ok();
}

int64_t MergeTable::Rank(int32_t left, int32_t right) const {
  const auto found = rank_of_pair_.find(PairKey(left, right));
  return found == rank_of_pair_.end() ? -1 : int64_t{found->second};
}

}  // namespace ecphory
