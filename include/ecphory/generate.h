// Sampling, and the loop that turns a prompt into text.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ecphory/session.h"
#include "ecphory/status.h"

namespace ecphory {

struct SamplerOptions {
  float temperature = 0.8f;  // 0 = greedy
  uint32_t top_k = 0;        // 0 = off
  float top_p = 1.0f;
  float min_p = 0.05f;          // relative to the best token
  float repeat_penalty = 1.0f;  // > 1 discourages the last `repeat_window` ids
  uint32_t repeat_window = 64;
  uint64_t seed = 0;
  Status Validate() const;  // names the option at fault
};

// Deterministic for a seed. Ties go to the lower id.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  ~Sampler();
  // `recent`: ids so far, oldest first.
  int32_t Sample(std::span<const float> logits,
                 std::span<const int32_t> recent);

 private:
  struct Impl;
  Impl* impl_;
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
};

struct GenerateOptions {
  uint32_t max_tokens = 256;
  SamplerOptions sampler;
  std::vector<std::string> stop;  // text that ends generation (not emitted)
  bool stop_at_eos = true;
  const std::atomic<bool>* cancel = nullptr;  // ends cleanly after this token
  // Called with whole UTF-8 characters as they come.
  std::function<void(std::string_view)> on_text;
  std::function<void(uint64_t done, uint64_t total)> on_prompt_progress;
};

enum class StopReason : uint8_t {
  kEos,
  kLength,
  kStopText,
  kContext,
  kCancelled
};
const char* StopReasonName(StopReason reason);

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;
  StopReason reason = StopReason::kLength;
  uint64_t prompt_tokens = 0;
  double prompt_seconds = 0;
  double generate_seconds = 0;  // from the first sampled token to the last
  double first_token_seconds = 0;
  SessionStats stats;  // of this call
};

// Appends `prompt` to the session and samples until something stops it.
Result<GenerateResult> Generate(Session& session, const Tokenizer& tokenizer,
                                std::span<const int32_t> prompt,
                                const GenerateOptions& options);

}  // namespace ecphory
