#include "text/vocabulary.h"

#include <optional>
#include <utility>

#include "base/quote.h"
#include "text/byte_alphabet.h"

namespace ecphory {

namespace {

constexpr size_t kMaxTokens = 1 << 22;  // 32 times the released count
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace

Status Vocabulary::Load(TokenizerData data, const std::string& where) {
  data_ = std::move(data);
  ECPHORY_RETURN_IF_ERROR(CheckCounts(where));
  ECPHORY_RETURN_IF_ERROR(IndexTokens(where));
  kinds_.assign(size(), Kind::kOrdinary);
  for (const TokenizerData::AddedToken& token : data_.added) {
    ECPHORY_RETURN_IF_ERROR(MarkAdded(token, where));
  }
  for (const int32_t id : {data_.bos_id, data_.eos_id}) {
    if (id != -1 && !Contains(id)) {
      return Corrupt("%s: bos or eos id %d, the vocabulary has %zu tokens",
                     where.c_str(), id, size());
    }
  }
  StoreBytes();
  return Status::Ok();
}

Status Vocabulary::CheckCounts(const std::string& where) const {
  if (size() == 0 || size() > kMaxTokens) {
    return Corrupt("%s: %zu tokens, expected 1 to %zu", where.c_str(), size(),
                   kMaxTokens);
  }
  for (size_t id = 0; id < size(); ++id) {
    if (data_.tokens[id].size() <= kMaxTokenBytes) continue;
    return Corrupt("%s: token %zu is %zu bytes long, at most %zu can be used",
                   where.c_str(), id, data_.tokens[id].size(), kMaxTokenBytes);
  }
  return Status::Ok();
}

Status Vocabulary::IndexTokens(const std::string& where) {
  ids_.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const std::string& token = data_.tokens[i];
    if (token.empty()) continue;  // an unused id
    const auto id = static_cast<int32_t>(i);
    const auto [known, is_new] = ids_.emplace(token, id);
    if (!is_new) {
      return Corrupt("%s: tokens %d and %d are both %s", where.c_str(),
                     known->second, id, Quoted(token).c_str());
    }
  }
  return Status::Ok();
}

Status Vocabulary::MarkAdded(const TokenizerData::AddedToken& token,
                             const std::string& where) {
  const std::string here = where + ": added token " + std::to_string(token.id) +
                           " " + Quoted(token.content);
  if (!Contains(token.id)) {
    return Corrupt("%s: the vocabulary has %zu tokens", here.c_str(), size());
  }
  if (token.content.empty()) return Corrupt("%s: is empty", here.c_str());
  if (data_.tokens[token.id] != token.content) {
    return Corrupt("%s: the vocabulary has %s there", here.c_str(),
                   Quoted(data_.tokens[token.id]).c_str());
  }
  if (kinds_[token.id] != Kind::kOrdinary) {
    return Corrupt("%s: is listed twice", here.c_str());
  }
  kinds_[token.id] = token.special ? Kind::kSpecial : Kind::kAdded;
  return Status::Ok();
}

void Vocabulary::StoreBytes() {
  ends_.reserve(size());
  for (size_t id = 0; id < size(); ++id) {
    std::optional<std::string> bytes;
    if (kinds_[id] == Kind::kOrdinary)
      bytes = AlphabetToBytes(data_.tokens[id]);
    // Text outside the alphabet stands for itself, as in the reference.
    bytes_ += bytes ? *bytes : data_.tokens[id];
    ends_.push_back(bytes_.size());
  }
}

int32_t Vocabulary::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

std::string_view Vocabulary::Bytes(int32_t id) const {
  if (!Contains(id)) return {};
  const size_t begin = id == 0 ? 0 : ends_[id - 1];
  return std::string_view(bytes_).substr(begin, ends_[id] - begin);
}

bool Vocabulary::IsAdded(int32_t id) const {
  return Contains(id) && kinds_[id] != Kind::kOrdinary;
}

bool Vocabulary::IsSpecial(int32_t id) const {
  return Contains(id) && kinds_[id] == Kind::kSpecial;
}

}  // namespace ecphory
