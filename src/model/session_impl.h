// What stands behind ecphory::Session.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ecphory/session.h"
#include "model/caches.h"
#include "model/forward.h"
#include "model/prefill.h"

namespace ecphory {

// What one Append runs.
struct AppendedText {
  std::span<const int32_t> tokens;
  std::span<const uint8_t> image;
  uint64_t position = 0;  // of token 0
  PrefillPlan plan;
};

struct Session::Impl {
  Impl(std::shared_ptr<const Model> the_model, const SessionOptions& opts,
       SequenceState sequence, std::shared_ptr<Forward> the_forward)
      : model(std::move(the_model)),
        options(opts),
        state(std::move(sequence)),
        forward(std::move(the_forward)) {}

  // Options that CheckSessionOptions has passed.
  static Result<std::unique_ptr<Session>> Create(
      std::shared_ptr<const Model> model, const SessionOptions& options,
      std::shared_ptr<Forward> forward);

  const ModelConfig& config() const { return model->config(); }

  // kOutOfRange when so many more do not fit, or one does not exist.
  Status CheckTokens(std::span<const int32_t> tokens) const;
  PrefillPlan Plan(size_t tokens, const AppendOptions& append) const;
  size_t PassAt(const AppendedText& text, size_t first) const {
    return text.plan.PassAt(first, text.tokens.size(), options.chunk);
  }
  Status Run(const AppendedText& text, const AppendOptions& append);
  Status RunChunk(const AppendedText& text, size_t first,
                  const AppendOptions& append);
  Status RebuildHistory();
  // What Session::Draw is to draw, or why it cannot.
  Result<ForwardDraw> DrawOf(const SamplerOptions& sampler, uint64_t random);
  // The same once `token` has been appended.
  Result<ForwardDraw> DrawBehind(int32_t token, const SamplerOptions& sampler,
                                 uint64_t random);

  std::shared_ptr<const Model> model;
  SessionOptions options;
  SequenceState state;
  std::shared_ptr<Forward> forward;  // its own, or a batch's
  // Over the session's life, also truncated ones.
  uint64_t tokens_run = 0;
  uint64_t tokens_skipped = 0;
};

// Fills in defaults. kInvalidArgument for sizes out of range, kUnsupported for
// what the model's device cannot do.
Status CheckSessionOptions(const Model& model, SessionOptions* options);

}  // namespace ecphory
