#include "text/utf8.h"

#include <algorithm>

namespace ecphory {

namespace {

// What a lead byte promises: the character's length (0: no lead byte) and the
// range of its second byte, which shuts out overlong forms and surrogates.
struct Lead {
  size_t length;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = LeadOf(first);
  if (lead.length == 0) return {Utf8Step::Kind::kInvalid, 0, 1};
  if (lead.length == 1) return {Utf8Step::Kind::kCharacter, first, 1};
  uint32_t code_point = first & (0x7fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, 0, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xbf;
    if (byte < min || byte > max) return {Utf8Step::Kind::kInvalid, 0, 1};
    code_point = code_point << 6 | (byte & 0x3fu);
  }
  return {Utf8Step::Kind::kCharacter, code_point, lead.length};
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  return std::string(ValidUtf8(text).text());
}

ValidUtf8::ValidUtf8(std::string_view text) : text_(text) {
  size_t copied = 0;  // bytes of `text` that are in replaced_
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind == Utf8Step::Kind::kCharacter) {
      at += step.length;
      continue;
    }
    replaced_ += text.substr(copied, at - copied);
    offsets_.push_back(replaced_.size());
    replaced_ += kReplacementCharacter;
    copied = ++at;
  }
  if (offsets_.empty()) return;
  replaced_ += text.substr(copied);
  text_ = replaced_;
}

size_t ValidUtf8::OriginalLength(std::string_view part) const {
  const auto begin = static_cast<size_t>(part.data() - text_.data());
  const auto first = std::lower_bound(offsets_.begin(), offsets_.end(), begin);
  const auto last =
      std::lower_bound(first, offsets_.end(), begin + part.size());
  const auto replacements = static_cast<size_t>(last - first);
  return part.size() - replacements * (kReplacementCharacter.size() - 1);
}

}  // namespace ecphory
