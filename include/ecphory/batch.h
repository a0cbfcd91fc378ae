// Several sequences continued together: a token of each in one pass, so that
// weights are read once for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/model.h"
#include "ecphory/sampler_options.h"
#include "ecphory/session.h"
#include "ecphory/status.h"

namespace ecphory {

// The next token of one sequence. The model's image_token_id is an image
// position, as in Session::Append.
struct BatchToken {
  Session* session = nullptr;
  int32_t token = 0;
};

// A token to be drawn from a session's logits, as by Session::Draw.
struct BatchDraw {
  Session* session = nullptr;
  SamplerOptions options;
  uint64_t random = 0;
};

// The memory in which passes over several sequences are computed. Sessions join
// and leave from step to step, each at a position of its own. Not thread-safe,
// and its sessions (NewSession) belong to the same thread at a time; several
// batches of a model may run in several threads.
class ECPHORY_EXPORT Batch {
 public:
  // For up to `sequences` sessions a step (1 to 8192), whose contexts are
  // options.context at most. options.chunk is of the prompts of its sessions,
  // and raised to `sequences`. Errors as of Session::Create.
  static Result<std::unique_ptr<Batch>> Create(
      std::shared_ptr<const Model> model, const SessionOptions& options,
      uint32_t sequences);
  ~Batch();

  // A session that computes prompts in the batch's memory instead of having
  // such memory itself: it holds its caches only. `context`: 0 is the batch's.
  // May outlive the batch. Its stats() count the batch's Engram rows.
  Result<std::unique_ptr<Session>> NewSession(uint32_t context = 0) const;

  // Appends a token to each of the sessions, which may be of NewSession or not,
  // and leaves its logits in each. State and logits are those that
  // Session::Append would leave, on the processor bit for bit (with int8
  // inputs, or bf16 on AMX, where more than 8 sequences take part, within
  // rounding).
  //
  // Errors name the sequence by its index in `tokens`; no session has changed
  // its position then. kInvalidArgument: none or too many, one twice, one of
  // another model, or with a longer context, other activations, rounding, index
  // keys or gates than the batch's. kOutOfRange: a full context, a token that
  // does not exist.
  Status Step(std::span<const BatchToken> tokens);
  // That, and then Draw; `draws` are of the same sessions in the same order.
  // `goes_on`: as of Session::Step, for all of them.
  Result<std::vector<int32_t>> Step(std::span<const BatchToken> tokens,
                                    std::span<const BatchDraw> draws,
                                    bool goes_on);
  // As of Session.
  void DropAhead();
  // Whether a step has been begun ahead.
  bool ahead() const;
  // What Session::Draw gives for each. On a GPU logits of the last step, and of
  // a session's last prompt, are where they were computed, and only tokens are
  // copied; Session::logits() copies them when it is asked for. Errors are
  // those of Session::Draw and, for sessions, of Step, and name the sequence by
  // its index in `draws`.
  Result<std::vector<int32_t>> Draw(std::span<const BatchDraw> draws);
  // A hint that these come next: their Engram rows are asked for now, all
  // together. A wrong hint costs reads only.
  void Prefetch(std::span<const BatchToken> tokens);

  uint32_t sequences() const;  // at most
  // With defaults filled in.
  const SessionOptions& options() const;
  // Of steps, and of its sessions' prompts.
  SessionStats stats() const;

 private:
  struct Impl;
  explicit Batch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ecphory
