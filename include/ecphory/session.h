// A sequence being read and continued: its caches, history and position.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/histogram.h"
#include "ecphory/model.h"
#include "ecphory/sampler_options.h"
#include "ecphory/status.h"

namespace ecphory {

enum class Activations : uint8_t {
  kF32,   // every activation fp32
  kBF16,  // rounded to bf16 at the boundaries the release rounds at
  // kF32, but for the inputs of products with weights that are small integers
  // times a scale (Q8_0, FP4, MXFP4, Q4_K, Q2_K, IQ2_XXS): rounded to int8 in
  // blocks of 32, by `cpu` and `ref`. Fast, approximate. mHC and products with
  // FP8, F16, BF16 and F32 weights stay as they are.
  kInt8,
};

// Which index keys a ratio-2 source scores against between completed groups.
enum class IndexKeys : uint8_t {
  kOwn,     // its own (default)
  kVendor,  // those of the layer that published last, as the vendor's code does
};

// Which layers the tokens of a long prompt pass. Only the last token's logits
// are wanted there, and the layers after the last KV source (the decoder: half
// of them in the release) read little of tokens far back.
enum class Prefill : uint8_t {
  // The decoder sees the tokens that can reach the state or the logits, which
  // are those of the full pass, bit for bit (default). In the release: the last
  // 2,414 + `chunk`, or up to a chunk more.
  kSkip,
  kFull,  // every token passes every layer
  // The vendor's approximation: only the last `sliding_window` tokens of an
  // Append pass the decoder, whose windows begin with them. Other logits.
  kReplay,
};

struct SessionOptions {
  uint32_t context = 0;  // tokens; 0 = min(model's maximum, 4096)
  // Tokens per forward pass of a prompt, and how far back Truncate reaches.
  uint32_t chunk = 256;
  Activations activations = Activations::kF32;
  bool state_rounding = true;  // false: caches and indexer in fp32
  IndexKeys index_keys = IndexKeys::kOwn;
  bool engram = true;  // false: every gate is shut
  // Layers are skipped when logits of the last token at most are wanted, no
  // observer watches, and the model has a KV source.
  Prefill prefill = Prefill::kSkip;
};

// Receives intermediates of one layer. Names are those of docs/dump.md.
class ECPHORY_EXPORT TensorObserver {
 public:
  virtual ~TensorObserver() = default;
  virtual bool Wants(uint32_t layer) const = 0;
  // `shape[0]` is the tokens of this forward pass. Called in order.
  virtual void OnF32(uint32_t layer, const std::string& name,
                     std::span<const float> values,
                     const std::vector<uint64_t>& shape) = 0;
  virtual void OnI32(uint32_t layer, const std::string& name,
                     std::span<const int32_t> values,
                     const std::vector<uint64_t>& shape) = 0;
  virtual void OnU8(uint32_t layer, const std::string& name,
                    std::span<const uint8_t> values,
                    const std::vector<uint64_t>& shape) = 0;
};

enum class LogitsWanted : uint8_t { kNone, kLast, kAll };

struct AppendOptions {
  // [tokens]; 1 = image position: dead for the look-back, gate shut, router
  // uses bias_vl. Empty = none. Tokens equal to the model's image_token_id are
  // image positions in any case.
  std::span<const uint8_t> image_mask;
  LogitsWanted logits = LogitsWanted::kLast;
  // kAll: called for each chunk with logits [count, vocab] of tokens
  // first .. first + count of this Append.
  std::function<Status(size_t first, size_t count, std::span<const float>)>
      on_logits;
  TensorObserver* observer = nullptr;
  // Called after each chunk with the tokens of this Append that are done. The
  // session must not be used in it.
  std::function<void(size_t done)> on_progress;
  // Checked between chunks; set = kCancelled. See Append for what stays.
  const std::atomic<bool>* cancel = nullptr;
};

struct ECPHORY_EXPORT SessionStats {
  uint64_t tokens = 0;
  // Of these, tokens that did not pass every layer, and how many passes of a
  // token through a layer's attention and experts were left out in all.
  uint64_t skipped_tokens = 0;
  uint64_t skipped_layer_passes = 0;
  // Steps of one token that a device did from a recording of its work, made
  // while it did the step before.
  uint64_t replayed_steps = 0;
  uint64_t engram_rows = 0;       // asked for
  uint64_t engram_rows_read = 0;  // after duplicates, not in the row cache
  uint64_t engram_cache_hits = 0;
  uint64_t engram_bytes_read = 0;
  double engram_read_seconds = 0;  // rows were under way
  double engram_wait_seconds = 0;  // the exposed part: layers stood still
  // Of each pass of one token, as in decoding: how long its layers stood still
  // in all, and from asking for its rows to the last of them.
  DurationHistogram engram_token_wait;
  DurationHistogram engram_token_read;

  // Takes away what `earlier`, former stats of the same session, had counted.
  SessionStats& operator-=(const SessionStats& earlier);
};

// Not thread-safe; several sessions of one Model may run in several threads.
class ECPHORY_EXPORT Session {
 public:
  static Result<std::unique_ptr<Session>> Create(
      std::shared_ptr<const Model> model, const SessionOptions& options);
  ~Session();

  // Appends tokens: the same state and logits, bit for bit, however a text is
  // cut into calls and chunks (with IndexKeys::kVendor selections depend on the
  // cut, as they do in the vendor's code). kOutOfRange when the context is full
  // or an id is outside the vocabulary (nothing is appended then).
  //
  // When it is cancelled or fails, the chunks that are done stay appended: read
  // position(). But where layers are being skipped, a state that the decoder
  // has not caught up with is none: then no token of this call stays, and the
  // session is back at the position and logits it had, with
  // EarliestTruncation() at that position. Prefill::kFull keeps every chunk.
  Status Append(std::span<const int32_t> tokens, const AppendOptions& options);
  // A hint that these tokens, as many as one chunk holds, are appended next:
  // their Engram rows are asked for now. A wrong hint costs reads only.
  void Prefetch(std::span<const int32_t> tokens);
  // Logits [vocab] of the last appended token; empty before the first, and
  // after Truncate until the next. On a GPU the first call after an Append
  // copies them, and they are empty as well when it has failed since.
  std::span<const float> logits() const;
  // The token that a Sampler takes of logits() and tokens() when it has drawn
  // `random`, uniform in 64 bits (`seed` plays no part). On a GPU it is drawn
  // there, and nothing else is copied. kInvalidArgument for options that are
  // none, or without logits; kCorrupt for logits that are none.
  Result<int32_t> Draw(const SamplerOptions& options, uint64_t random);
  // Append of one token, then Draw, with their errors: options that are none
  // are refused before anything is done, and when it is the logits that fail,
  // the token stays appended. A GPU does both in one go.
  //
  // `goes_on`: the token drawn is appended by the next call, which is this one
  // again, or it is not and DropAhead() is called. A GPU begins with it before
  // the host has seen it. No bit depends on that, but a step begun ahead has
  // been written behind the last token (EarliestTruncation), and when the step
  // in front fails, the session may have no logits.
  Result<int32_t> Step(int32_t token, const SamplerOptions& options,
                       uint64_t random, bool goes_on);
  // Waits for the end of a step that was begun ahead, of which nothing stays.
  // All other calls that are not the one expected do so by themselves.
  void DropAhead();

  uint64_t position() const;  // tokens appended
  uint64_t context() const;
  std::span<const int32_t> tokens() const;

  // Forgets all tokens from `position` on. Windows and open groups are kept for
  // `chunk` tokens back, so any position >= EarliestTruncation() works, as does
  // 0; others are kOutOfRange, saying so. Skipping exactly (kSkip) changes
  // nothing about it; a prompt that was replayed (kReplay) cannot be gone back
  // into.
  Status Truncate(uint64_t position);
  uint64_t EarliestTruncation() const;

  // Versioned, checksummed image of the state. Restores only into a session of
  // the same model (shape and layout are compared) and the same
  // `state_rounding`; the other options are the new session's own. A damaged or
  // foreign image is refused and leaves the session as it was.
  Result<std::vector<uint8_t>> Snapshot() const;
  Status Restore(std::span<const uint8_t> snapshot);
  Status SaveSnapshot(const std::string& path) const;
  Status LoadSnapshot(const std::string& path);

  SessionStats stats() const;
  uint64_t state_bytes() const;  // caches as allocated

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ecphory
