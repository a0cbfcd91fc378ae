// Sampling, and the loop that turns a prompt into text.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ecphory/batch.h"
#include "ecphory/export.h"
#include "ecphory/sampler_options.h"
#include "ecphory/session.h"
#include "ecphory/status.h"

namespace ecphory {

// Deterministic for a seed: the same tokens for the same logits, on every
// backend and platform. Ties go to the lower id.
class ECPHORY_EXPORT Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // must be valid
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // `recent`: ids so far, oldest first. kCorrupt when a logit is NaN or
  // +infinity, or when every one is -infinity (never chosen).
  Result<int32_t> Sample(std::span<const float> logits,
                         std::span<const int32_t> recent);
  // Of the session's logits after its tokens, where its device has them.
  Result<int32_t> Sample(Session& session);
  // What Sample(session) would draw, for Batch::Draw to do it.
  BatchDraw Next(Session& session);
  // Session::Step, which draws what Sample(session) then would.
  Result<int32_t> Step(Session& session, int32_t token, bool goes_on);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct GenerateOptions {
  uint32_t max_tokens = 256;
  SamplerOptions sampler;
  // UTF-8 texts that end generation, wherever tokens are cut; never emitted.
  std::vector<std::string> stop;
  bool stop_at_eos = true;
  const std::atomic<bool>* cancel = nullptr;  // ends cleanly after this token
  // Called with whole UTF-8 characters as they come. Text that may turn out to
  // be the beginning of a stop text is held back until it is decided.
  std::function<void(std::string_view)> on_text;
  std::function<void(uint64_t done, uint64_t total)> on_prompt_progress;
};

enum class StopReason : uint8_t {
  kEos,       // the model ended the text
  kLength,    // max_tokens
  kStopText,  // one of `stop`
  kContext,   // the session is full
  kCancelled  // `cancel`
};
// "eos", "length", "stop", "context", "cancelled".
ECPHORY_EXPORT const char* StopReasonName(StopReason reason);

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // without the final eos
  StopReason reason = StopReason::kLength;
  uint64_t prompt_tokens = 0;
  double prompt_seconds = 0;       // the forward passes of the prompt
  double first_token_seconds = 0;  // from the call to the first sampled token
  double generate_seconds = 0;     // from the first sampled token to the last
  SessionStats stats;              // of this call
};

// Appends `prompt` to the session and samples until something stops it. An
// empty prompt continues a session that already holds tokens. Afterwards the
// session holds the prompt and all of `tokens` but the last, which a next call
// may pass as the head of its prompt.
ECPHORY_EXPORT Result<GenerateResult> Generate(Session& session,
                                               const Tokenizer& tokenizer,
                                               std::span<const int32_t> prompt,
                                               const GenerateOptions& options);

struct GenerateRequest {
  std::span<const int32_t> prompt;
  GenerateOptions options;
};

// Continues all prompts, in sessions of the batch, as many at a time as it
// takes: the next one begins when one before it has ended. Each has a sampler
// of its own, so that a text is the one that it would be alone (on the
// processor; on a GPU but for the order of sums). Results in the order of the
// requests; their times and Engram counters are those of everything that went
// on meanwhile. An error ends all of them and names the prompt by its index, or
// the sequence as Batch::Step does.
ECPHORY_EXPORT Result<std::vector<GenerateResult>> Generate(
    Batch& batch, const Tokenizer& tokenizer,
    std::span<const GenerateRequest> requests);

}  // namespace ecphory
