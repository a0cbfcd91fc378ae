// Byte-level BPE with the DeepSeek pre-tokenizer: text to ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

struct TokenizerData {
  // Vocabulary strings by id, in the GPT-2 byte alphabet (added tokens: plain
  // text). Empty: an unused id.
  std::vector<std::string> tokens;
  // "left right" pairs, best first, in the same alphabet.
  std::vector<std::string> merges;
  struct AddedToken {
    int32_t id = 0;
    std::string content;
    bool special = false;
    // Looked for after, and in what is left by, tokens that are not (a rule of
    // the reference tokenizer; it matters only where two tokens overlap).
    bool normalized = false;
  };
  std::vector<AddedToken> added;
  // Pre-tokenizer split patterns, applied one after another.
  std::vector<std::string> split_patterns;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  bool add_bos = false;
};

// The added tokens of a vocabulary that keeps GGUF token types only: type 3 is
// special, type 4 is not; neither are those of type 1 that are no single byte
// and that no merge builds (some files mark added tokens so).
ECPHORY_EXPORT std::vector<TokenizerData::AddedToken> AddedTokensFromTypes(
    const std::vector<std::string>& tokens,
    const std::vector<std::string>& merges, const std::vector<int32_t>& types);

struct EncodeOptions {
  bool add_bos = false;
  // Recognise special added tokens inside the text. Off for anything a user
  // typed: their spelling is then ordinary text. (Added tokens that are not
  // special are always recognised, as in the reference tokenizer.)
  bool parse_special = false;
};

// Immutable and thread-safe after creation. Copies share the data.
class ECPHORY_EXPORT Tokenizer {
 public:
  // The text of a Hugging Face tokenizer.json: byte-level BPE with isolated
  // splits; anything else is refused by name. bos and eos are the added tokens
  // that DeepSeek uses as such, where present. `where` names the file in
  // errors.
  static Result<Tokenizer> FromJson(std::string_view json,
                                    const std::string& where);
  static Result<Tokenizer> FromData(TokenizerData data,
                                    const std::string& where);
  // The three split patterns GGUF calls 'joyai-llm' (DeepSeek V3 to V4.1).
  static std::vector<std::string> DeepSeekSplitPatterns();

  size_t vocab_size() const;
  int32_t bos_id() const;
  int32_t eos_id() const;
  const TokenizerData& data() const;

  // Ids of `text`: any bytes, which come back unchanged from Decode. (Invalid
  // UTF-8 is split as if each such byte were U+FFFD, and encoded as it is.)
  // Fails for texts over 1 GiB, for 16 MiB without a word boundary, and where a
  // split pattern backtracks without end (never DeepSeek's).
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  // Exact bytes of the ids; special tokens as their text unless skip_special.
  // kOutOfRange names an id outside the vocabulary.
  Result<std::string> Decode(const std::vector<int32_t>& ids,
                             bool skip_special = false) const;
  // Bytes of one token; empty for ids outside the vocabulary or unused.
  std::string_view TokenBytes(int32_t id) const;
  // Vocabulary string as stored (byte alphabet).
  std::string_view TokenString(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  // -1 when the vocabulary has no such string.
  int32_t FindToken(std::string_view token_string) const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Turns ids into text as they come, holding back bytes that do not yet form
// whole UTF-8 characters. Bytes that cannot become part of one come out as
// U+FFFD each. Ids outside the vocabulary have no text.
class ECPHORY_EXPORT StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);
  // The text that became complete with this id (may be empty).
  std::string Push(int32_t id);
  // What is held back at the end, each invalid byte as U+FFFD.
  std::string Finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace ecphory
