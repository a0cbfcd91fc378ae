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

Result<int32_t> Lookup(const Vocabulary& vocabulary, std::string_view token,
                       const std::string& where) {
  const int32_t id = vocabulary.Find(token);
  if (id >= 0) return id;
  return Corrupt("%s: %s is not in the vocabulary", where.c_str(),
                 Quoted(token).c_str());
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
  const std::string here =
      where + ": merge " + std::to_string(rank) + " " + Quoted(text);
  const size_t space = text.find(' ');
  if (space == std::string::npos ||
      text.find(' ', space + 1) != std::string::npos) {
    return Corrupt("%s: expected two tokens with one space between them",
                   here.c_str());
  }
  const std::string left = text.substr(0, space);
  const std::string right = text.substr(space + 1);
  Merge merge{};
  ECPHORY_ASSIGN_OR_RETURN(merge.left, Lookup(vocabulary, left, here));
  ECPHORY_ASSIGN_OR_RETURN(merge.right, Lookup(vocabulary, right, here));
  ECPHORY_ASSIGN_OR_RETURN(merge.result,
                           Lookup(vocabulary, left + right, here));
  if (vocabulary.IsSpecial(merge.result)) {
    return Corrupt("%s: builds special token %d, which ordinary text must not",
                   here.c_str(), merge.result);
  }
  if (!rank_of_pair_.emplace(PairKey(merge.left, merge.right), rank).second) {
    return Corrupt("%s: the pair has a merge already", here.c_str());
  }
  merges_.push_back(merge);
  return Status::Ok();
}

int64_t MergeTable::Rank(int32_t left, int32_t right) const {
  const auto found = rank_of_pair_.find(PairKey(left, right));
  return found == rank_of_pair_.end() ? -1 : int64_t{found->second};
}

}  // namespace ecphory
