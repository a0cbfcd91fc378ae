// One sequence under generation: its sampler, its text so far, why it ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ecphory/generate.h"
#include "runtime/stop_matcher.h"

namespace ecphory {

// What can be said before anything is computed, for a session that holds
// `position` tokens of its context.
Status CheckGeneration(uint64_t position, uint64_t context,
                       std::span<const int32_t> prompt,
                       const GenerateOptions& options);

// The steps of Generate(). Session, tokenizer and options outlive it.
class Generation {
 public:
  Generation(Session& session, const Tokenizer& tokenizer,
             const GenerateOptions& options);

  Status AppendPrompt(std::span<const int32_t> prompt);
  // The next token, from the session's logits.
  Result<int32_t> Sample();
  // The session reads the token taken last and draws the next one.
  Result<int32_t> Step(int32_t id) {
    return sampler_.Step(session_, id, WillGoOn());
  }
  // How it is to be drawn, for Batch::Draw.
  BatchDraw Next() { return sampler_.Next(session_); }
  // Whether the token that is drawn next will be read, unless it ends the text.
  bool WillGoOn() const;
  // Whether the session has to read `id`, unless a stop text ends with it.
  bool GoesOnWith(int32_t id) const;
  // Counts, decodes and shows `id`. False when it ended the text, or the text
  // ends for another reason.
  bool Take(int32_t id);
  // The text ends here.
  void Cancel() { result_.reason = StopReason::kCancelled; }
  // Shows what was held back.
  GenerateResult Finish();

  Session& session() const { return session_; }
  const GenerateOptions& options() const { return options_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool TakeToken(int32_t id);
  void CountToken(int32_t id);
  void Emit(const std::string& text);
  bool IsEos(int32_t id) const {
    return options_.stop_at_eos && id == tokenizer_.eos_id();
  }

  Session& session_;
  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  const SessionStats before_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  const Clock::time_point start_ = Clock::now();
  GenerateResult result_;
};

}  // namespace ecphory
