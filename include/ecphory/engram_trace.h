// What the Engram memory does with a text: rows, gates and movement by token.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/model.h"
#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// One hash head of one n-gram size: a range of rows of its layer's table.
struct EngramTraceColumn {
  uint32_t ngram = 0;   // 2..max_ngram
  uint32_t head = 0;    // 0..heads-1
  uint64_t prime = 0;   // rows of this column
  uint64_t offset = 0;  // first of them
};

struct EngramTraceLayer {
  uint32_t layer = 0;
  uint64_t rows = 0;                       // of the table
  std::vector<uint64_t> multipliers;       // [max_ngram], by look-back distance
  std::vector<EngramTraceColumn> columns;  // n-gram size major, head minor
};

// What one residual stream makes of the memory's value v: h += gate * v.
struct EngramStreamTrace {
  float gate = 0;    // 0 at a dead position
  float dot = 0;     // key against stream, scaled; what the gate is made from:
                     // sigmoid(copysign(sqrt(|dot|), dot)), inverted. 0 at a
                     // dead position, NaN where the gate rounds to 1 (beyond
                     // about 270)
  float move = 0;    // |gate * v| / |h|, both L2; 0 where h is 0
  float cosine = 0;  // of v and h; 0 where one of them is 0
};

// One token in one Engram layer.
struct EngramTokenTrace {
  std::vector<uint64_t> mixed;  // [max_ngram - 1]: what is taken mod the primes
                                // of that n-gram size
  std::vector<uint64_t> rows;   // [columns] = mixed mod prime + offset
  std::vector<EngramStreamTrace> streams;  // [hc_mult]; empty without weights
};

struct EngramTraceToken {
  int32_t id = 0;
  std::string piece;        // bytes; empty without a tokenizer
  bool special = false;     // an added token such as the begin of text
  int32_t compressed = -1;  // -1: dead (an image position)
  // Compressed ids as hashed, the token's own first; the first `reach` are of
  // the text, the others are padding. Dead: all padding, reach 0.
  std::vector<int32_t> window;  // [max_ngram]
  uint32_t reach = 0;
  std::vector<EngramTokenTrace> layers;
};

// Tokens that share a compressed id: their texts normalise alike.
struct EngramTraceClass {
  int32_t compressed = 0;
  uint64_t members = 0;
  std::vector<std::string> pieces;  // bytes of the first few members, by id
};

struct EngramTrace {
  std::string path;
  std::string name;     // the model's own; may be empty
  std::string backend;  // "" without weights
  uint32_t max_ngram = 0;
  uint32_t heads = 0;
  uint32_t row_width = 0;  // values of a row
  uint32_t streams = 0;    // 0 without weights
  int32_t pad_compressed = 0;
  uint64_t tokens_given = 0;  // of the text; tokens.size() of them are traced
  std::vector<EngramTraceLayer> layers;
  std::vector<EngramTraceToken> tokens;
  std::vector<EngramTraceClass> classes;  // of the tokens traced, ascending
};

// More tokens than this are never traced: a page of them is 50 MB.
inline constexpr uint32_t kMaxTraceTokens = 32768;

struct EngramTracerOptions {
  ModelOptions model;
  // False: addresses only. Reads headers and the token map; a GGUF file with
  // Engram keys, or a config.json with its token map beside it, will do.
  bool weights = true;
  // A tokenizer.json in place of the model's own tokenizer; "" = none.
  std::string tokenizer;
};

struct EngramTraceOptions {
  uint32_t limit = 2048;  // the first so many tokens, 1..kMaxTraceTokens; with
                          // weights at most the model's context
  // [tokens]; 1 = image position: dead. Empty = none. Tokens equal to the
  // model's image token are image positions in any case.
  std::span<const uint8_t> image_mask = {};
  const std::atomic<bool>* cancel = nullptr;
};

// A model, or the part of it that says where rows lie, opened for tracing.
// Immutable and thread-safe.
class ECPHORY_EXPORT EngramTracer {
 public:
  // kInvalidArgument for a model without Engram.
  static Result<std::unique_ptr<EngramTracer>> Open(
      const std::string& path, const EngramTracerOptions& options);
  ~EngramTracer();

  // Null when there is none; then tokens have no pieces.
  const Tokenizer* tokenizer() const;
  // Null when addresses only are traced.
  const Model* model() const;

  // The text as one fresh sequence. Gates and movements are those of a forward
  // pass of these tokens. kOutOfRange names an id outside the vocabulary.
  Result<EngramTrace> Trace(std::span<const int32_t> tokens,
                            const EngramTraceOptions& options) const;

 private:
  struct Impl;
  explicit EngramTracer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One JSON object (docs/engram.md, 'Trace'). Numbers that may pass 2^53
// (multipliers, mixed) are decimal strings.
ECPHORY_EXPORT std::string EngramTraceJson(const EngramTrace& trace);

struct EngramTraceTextOptions {
  uint32_t width = 100;       // of the terminal, at least 60
  bool every_column = false;  // a line for each row: prime, remainder, offset
};
ECPHORY_EXPORT std::string EngramTraceText(
    const EngramTrace& trace, const EngramTraceTextOptions& options);

// One self-contained page: no other file, no network.
ECPHORY_EXPORT std::string EngramTraceHtml(const EngramTrace& trace);

// Before a long job: whether WriteTextFile will be able to write there, and
// not over one of the files that are read. An input may be a model's directory,
// or empty for none.
ECPHORY_EXPORT Status CheckTextFile(const std::string& path,
                                    std::span<const std::string> inputs);

// Writes `text` whole or not at all; replaces a regular file only.
ECPHORY_EXPORT Status WriteTextFile(const std::string& path,
                                    const std::string& text);

}  // namespace ecphory
