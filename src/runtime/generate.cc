#include "ecphory/generate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/stop_matcher.h"

namespace ecphory {

namespace {

// Tokens between two reports of progress through a prompt: a few passes of the
// default chunk, so that reporting costs nothing.
constexpr size_t kProgressTokens = 1024;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A stop text that begins inside a character could split one on the way out.
bool BeginsInsideCharacter(const std::string& text) {
  return (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80;
}

Status CheckStops(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) {
      return InvalidArgument("stop text is empty, expected at least one byte");
    }
    if (BeginsInsideCharacter(stop)) {
      return InvalidArgument(
          "stop text begins with byte 0x%02x, expected valid UTF-8",
          static_cast<unsigned char>(stop[0]));
    }
  }
  return {};
}

// One call of Generate.
class Generation {
 public:
  Generation(Session& session, const Tokenizer& tokenizer,
             const GenerateOptions& options)
      : session_(session),
        tokenizer_(tokenizer),
        options_(options),
        sampler_(options.sampler),
        decoder_(tokenizer),
        stops_(options.stop) {}

  Result<GenerateResult> Run(std::span<const int32_t> prompt);

 private:
  Status AppendPrompt(std::span<const int32_t> prompt);
  Status SampleUntilStopped();
  // Counts, decodes and shows `id`. True when it ended the text.
  bool Take(int32_t id);
  void CountToken(int32_t id);
  void Emit(const std::string& text);
  bool Cancelled() const {
    return options_.cancel != nullptr && options_.cancel->load();
  }
  bool IsEos(int32_t id) const {
    return options_.stop_at_eos && id == tokenizer_.eos_id();
  }
  Status AppendToken(int32_t id);
  void Prefetch(int32_t id);

  Session& session_;
  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  const Clock::time_point start_ = Clock::now();
  GenerateResult result_;
};

Status Generation::AppendPrompt(std::span<const int32_t> prompt) {
  AppendOptions append;
  append.cancel = options_.cancel;
  size_t reported = 0;
  append.on_progress = [&](size_t done) {
    if (!options_.on_prompt_progress) return;
    if (done - reported < kProgressTokens && done < prompt.size()) return;
    reported = done;
    options_.on_prompt_progress(done, prompt.size());
  };
  return session_.Append(prompt, append);
}

Status Generation::AppendToken(int32_t id) {
  AppendOptions append;
  append.cancel = options_.cancel;
  return session_.Append({&id, 1}, append);
}

// The token's Engram rows are on their way while its text is shown.
void Generation::Prefetch(int32_t id) {
  const bool last = IsEos(id) ||
                    result_.tokens.size() + 1 >= options_.max_tokens ||
                    session_.position() >= session_.context();
  if (!last) session_.Prefetch({&id, 1});
}

void Generation::Emit(const std::string& text) {
  if (text.empty()) return;
  result_.text += text;
  if (options_.on_text) options_.on_text(text);
}

void Generation::CountToken(int32_t id) {
  const double seconds = SecondsSince(start_);
  if (result_.tokens.empty()) result_.first_token_seconds = seconds;
  result_.generate_seconds = seconds - result_.first_token_seconds;
  result_.tokens.push_back(id);
}

bool Generation::Take(int32_t id) {
  if (IsEos(id)) {
    result_.reason = StopReason::kEos;
    return true;
  }
  CountToken(id);
  Emit(stops_.Push(decoder_.Push(id)));
  if (stops_.matched()) {
    result_.reason = StopReason::kStopText;
    return true;
  }
  result_.reason = StopReason::kLength;
  return result_.tokens.size() >= options_.max_tokens;
}

Status Generation::SampleUntilStopped() {
  if (options_.max_tokens == 0) return {};
  for (;;) {
    ECPHORY_ASSIGN_OR_RETURN(
        const int32_t id,
        sampler_.Sample(session_.logits(), session_.tokens()));
    Prefetch(id);
    if (Take(id)) return {};
    if (Cancelled()) {
      result_.reason = StopReason::kCancelled;
      return {};
    }
    if (session_.position() >= session_.context()) {
      result_.reason = StopReason::kContext;
      return {};
    }
    ECPHORY_RETURN_IF_ERROR(AppendToken(id));
  }
}

Result<GenerateResult> Generation::Run(std::span<const int32_t> prompt) {
  const SessionStats before = session_.stats();
  result_.prompt_tokens = prompt.size();
  Status status = AppendPrompt(prompt);
  result_.prompt_seconds = SecondsSince(start_);
  if (status.ok()) status = SampleUntilStopped();
  if (status.code() == StatusCode::kCancelled) {
    result_.reason = StopReason::kCancelled;
    status = {};
  }
  ECPHORY_RETURN_IF_ERROR(status);
  Emit(stops_.Push(decoder_.Finish()));
  Emit(stops_.Finish());
  result_.stats = session_.stats();
  result_.stats -= before;
  return std::move(result_);
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
  ECPHORY_RETURN_IF_ERROR(options.sampler.Validate());
  ECPHORY_RETURN_IF_ERROR(CheckStops(options.stop));
  if (prompt.empty() && session.position() == 0) {
    return InvalidArgument(
        "prompt is empty, expected at least one token to begin with");
  }
  if (prompt.size() > session.context() - session.position()) {
    return OutOfRange(
        "prompt has %zu tokens, but the context of %llu holds %llu more; open "
        "the session with a larger context",
        prompt.size(), static_cast<unsigned long long>(session.context()),
        static_cast<unsigned long long>(session.context() -
                                        session.position()));
  }
  return Generation(session, tokenizer, options).Run(prompt);
}

}  // namespace ecphory
