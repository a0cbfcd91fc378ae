#include "ecphory/generate.h"

#include <utility>

#include "runtime/generation.h"

namespace ecphory {

namespace {

Status SampleUntilStopped(Generation* generation) {
  Session& session = generation->session();
  const GenerateOptions& options = generation->options();
  if (options.max_tokens == 0) return {};
  ECPHORY_ASSIGN_OR_RETURN(int32_t id, generation->Sample());
  for (;;) {
    // The token's Engram rows are on their way while its text is shown.
    if (generation->GoesOnWith(id)) session.Prefetch({&id, 1});
    if (!generation->Take(id)) break;
    ECPHORY_ASSIGN_OR_RETURN(id, generation->Step(id));
  }
  session.DropAhead();
  return {};
}

}  // namespace

const char* StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEos: return "eos";
    case StopReason::kLength: return "length";
    case StopReason::kStopText: return "stop";
    case StopReason::kContext: return "context";
    case StopReason::kCancelled: return "cancelled";
  }
  return "unknown";
}

Result<GenerateResult> Generate(Session& session, const Tokenizer& tokenizer,
                                std::span<const int32_t> prompt,
                                const GenerateOptions& options) {
  ECPHORY_RETURN_IF_ERROR(
      CheckGeneration(session.position(), session.context(), prompt, options));
  Generation generation(session, tokenizer, options);
  Status status = generation.AppendPrompt(prompt);
  if (status.ok()) status = SampleUntilStopped(&generation);
  if (status.code() == StatusCode::kCancelled) {
    generation.Cancel();
    status = {};
  }
  ECPHORY_RETURN_IF_ERROR(status);
  return generation.Finish();
}

}  // namespace ecphory
