#include <utility>

#include "ecphory/tokenizer.h"
#include "text/utf8.h"

namespace ecphory {

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::Push(int32_t id) {
  if (skip_special_ && tokenizer_.IsSpecial(id)) return {};
  pending_ += tokenizer_.TokenBytes(id);
  // Only the last three bytes can be the start of a longer character.
  size_t whole = 0;
  while (whole < pending_.size()) {
    const Utf8Step step = NextUtf8(std::string_view(pending_).substr(whole));
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    whole += step.length;
  }
  std::string text =
      ReplaceInvalidUtf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::Finish() {
  return ReplaceInvalidUtf8(std::exchange(pending_, {}));
}

}  // namespace ecphory
