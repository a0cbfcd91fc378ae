#include "ecphory/tokenizer.h"

#include <optional>
#include <utility>

#include "text/added_tokens.h"
#include "text/merge_table.h"
#include "text/splitter.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"
#include "text/vocabulary.h"
#include "text/word_encoder.h"

namespace ecphory {

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;
// Byte-pair encoding takes about 40 bytes per byte of a word.
constexpr size_t kMaxWordBytes = size_t{1} << 24;

std::vector<TokenizerData::AddedToken> AddedOfPass(
    const std::vector<TokenizerData::AddedToken>& added, bool normalized) {
  std::vector<TokenizerData::AddedToken> chosen;
  for (const TokenizerData::AddedToken& token : added) {
    if (token.normalized == normalized) chosen.push_back(token);
  }
  return chosen;
}

}  // namespace

struct Tokenizer::Impl {
  // Set by Load, in this order.
  Vocabulary vocabulary;
  std::optional<MergeTable> merges;
  std::optional<Splitter> splitter;
  // The reference looks for `normalized` tokens in what the others left.
  std::vector<AddedTokenMatcher> added_passes;

  Status Load(TokenizerData data, const std::string& where) {
    ECPHORY_RETURN_IF_ERROR(vocabulary.Load(std::move(data), where));
    const TokenizerData& kept = vocabulary.data();
    ECPHORY_ASSIGN_OR_RETURN(merges, MergeTable::Create(vocabulary, where));
    ECPHORY_ASSIGN_OR_RETURN(splitter,
                             Splitter::Create(kept.split_patterns, where));
    added_passes.emplace_back(AddedOfPass(kept.added, false));
    added_passes.emplace_back(AddedOfPass(kept.added, true));
    return Status::Ok();
  }

  class Encoder;
};

// One Encode call: added tokens, then words, then merges.
class Tokenizer::Impl::Encoder {
 public:
  Encoder(const Impl& impl, bool parse_special)
      : impl_(impl),
        parse_special_(parse_special),
        split_(*impl.splitter),
        words_(*impl.merges) {}

  Status Append(std::string_view text) { return AppendAdded(0, text); }
  std::vector<int32_t> TakeIds() { return std::move(ids_); }
  void AppendId(int32_t id) { ids_.push_back(id); }

 private:
  // Cuts the added tokens of this and later passes out of `text`.
  Status AppendAdded(size_t pass, std::string_view text) {
    if (pass == impl_.added_passes.size()) return AppendPlain(text);
    const AddedTokenMatcher& matcher = impl_.added_passes[pass];
    size_t done = 0;
    size_t from = 0;
    while (const auto match = matcher.Find(text, from)) {
      from = match->end;
      if (match->special && !parse_special_) continue;
      ECPHORY_RETURN_IF_ERROR(
          AppendAdded(pass + 1, text.substr(done, match->begin - done)));
      AppendId(match->id);
      done = match->end;
    }
    return AppendAdded(pass + 1, text.substr(done));
  }

  Status AppendPlain(std::string_view text) {
    const ValidUtf8 valid(text);
    size_t begin = 0;
    return split_.Split(valid.text(), [&](std::string_view word) {
      const size_t length = valid.OriginalLength(word);
      begin += length;
      return AppendWord(text.substr(begin - length, length));
    });
  }

  Status AppendWord(std::string_view word) {
    if (word.size() > kMaxWordBytes) {
      return ResourceExhausted(
          "text: %zu bytes without a word boundary, at most %zu can be "
          "encoded: break the text up",
          word.size(), kMaxWordBytes);
    }
    words_.Encode(word, &ids_);
    return Status::Ok();
  }

  const Impl& impl_;
  const bool parse_special_;
  SplitRun split_;
  WordEncoder words_;
  std::vector<int32_t> ids_;
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}

Result<Tokenizer> Tokenizer::FromData(TokenizerData data,
                                      const std::string& where) {
  auto impl = std::make_shared<Impl>();
  ECPHORY_RETURN_IF_ERROR(impl->Load(std::move(data), where));
  return Tokenizer(std::shared_ptr<const Impl>(std::move(impl)));
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json,
                                      const std::string& where) {
  ECPHORY_ASSIGN_OR_RETURN(TokenizerData data, ParseTokenizerJson(json, where));
  return FromData(std::move(data), where);
}

std::vector<std::string> Tokenizer::DeepSeekSplitPatterns() {
  return {
      R"(\p{N}{1,3})",
      "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
      "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
      "| ?[\\p{P}\\p{S}]+[\r\n]*"
      "|\\s*[\r\n]+"
      R"(|\s+(?!\S)|\s+)",
  };
}

size_t Tokenizer::vocab_size() const { return impl_->vocabulary.size(); }

int32_t Tokenizer::bos_id() const { return data().bos_id; }

int32_t Tokenizer::eos_id() const { return data().eos_id; }

const TokenizerData& Tokenizer::data() const {
  return impl_->vocabulary.data();
}

Result<std::vector<int32_t>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument(
        "text: %zu bytes, at most %zu can be encoded at once", text.size(),
        kMaxTextBytes);
  }
  Impl::Encoder encoder(*impl_, options.parse_special);
  if (options.add_bos && bos_id() >= 0) encoder.AppendId(bos_id());
  ECPHORY_RETURN_IF_ERROR(encoder.Append(text));
  return encoder.TakeIds();
}

Result<std::string> Tokenizer::Decode(const std::vector<int32_t>& ids,
                                      bool skip_special) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!impl_->vocabulary.Contains(ids[i])) {
      return OutOfRange("token %zu: id %d, the vocabulary has %zu tokens", i,
                        ids[i], vocab_size());
    }
    if (!skip_special || !IsSpecial(ids[i])) text += TokenBytes(ids[i]);
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return impl_->vocabulary.Bytes(id);
}

std::string_view Tokenizer::TokenString(int32_t id) const {
  if (!impl_->vocabulary.Contains(id)) return {};
  return data().tokens[id];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return impl_->vocabulary.IsSpecial(id);
}

int32_t Tokenizer::FindToken(std::string_view token_string) const {
  return impl_->vocabulary.Find(token_string);
}

}  // namespace ecphory
