#include "runtime/generation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace ecphory {

namespace {

// Tokens between two reports of progress through a prompt: a few passes of the
// default chunk, so that reporting costs nothing.
constexpr size_t kProgressTokens = 1024;

// Text comes in whole characters, in which any other bytes are never found, or
// split one.
Status CheckUtf8(const std::string& stop) {
  for (size_t at = 0; at < stop.size();) {
    const Utf8Step step = NextUtf8(std::string_view(stop).substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) {
      return InvalidArgument(
          "stop text has byte 0x%02x at %zu, expected valid UTF-8",
          static_cast<unsigned char>(stop[at]), at);
    }
    at += step.length;
  }
  return {};
}

Status CheckStops(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) {
      return InvalidArgument("stop text is empty, expected at least one byte");
    }
    ECPHORY_RETURN_IF_ERROR(CheckUtf8(stop));
  }
  return {};
}

}  // namespace

Status CheckGeneration(uint64_t position, uint64_t context,
                       std::span<const int32_t> prompt,
                       const GenerateOptions& options) {
  ECPHORY_RETURN_IF_ERROR(options.sampler.Validate());
  ECPHORY_RETURN_IF_ERROR(CheckStops(options.stop));
  if (prompt.empty() && position == 0) {
    return InvalidArgument(
        "prompt is empty, expected at least one token to begin with");
  }
  if (prompt.size() > context - position) {
    return OutOfRange(
        "prompt has %zu tokens, but the context of %llu holds %llu more; open "
        "the session with a larger context",
        prompt.size(), static_cast<unsigned long long>(context),
        static_cast<unsigned long long>(context - position));
  }
  return {};
}

Generation::Generation(Session& session, const Tokenizer& tokenizer,
                       const GenerateOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(options),
      before_(session.stats()),
      sampler_(options.sampler),
      decoder_(tokenizer),
      stops_(options.stop) {}

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
  const Clock::time_point begin = Clock::now();
  const Status status = session_.Append(prompt, append);
  result_.prompt_tokens = prompt.size();
  result_.prompt_seconds =
      std::chrono::duration<double>(Clock::now() - begin).count();
  return status;
}

Result<int32_t> Generation::Sample() { return sampler_.Sample(session_); }

bool Generation::GoesOnWith(int32_t id) const {
  return !IsEos(id) && result_.tokens.size() + 1 < options_.max_tokens &&
         session_.position() < session_.context();
}

bool Generation::WillGoOn() const {
  return result_.tokens.size() + 1 < options_.max_tokens &&
         session_.position() + 1 < session_.context();
}

void Generation::Emit(const std::string& text) {
  if (text.empty()) return;
  result_.text += text;
  if (options_.on_text) options_.on_text(text);
}

void Generation::CountToken(int32_t id) {
  const double seconds =
      std::chrono::duration<double>(Clock::now() - start_).count();
  if (result_.tokens.empty()) result_.first_token_seconds = seconds;
  result_.generate_seconds = seconds - result_.first_token_seconds;
  result_.tokens.push_back(id);
}

// False when it ended the text.
bool Generation::TakeToken(int32_t id) {
  if (IsEos(id)) {
    result_.reason = StopReason::kEos;
    return false;
  }
  CountToken(id);
  Emit(stops_.Push(decoder_.Push(id)));
  if (stops_.matched()) {
    result_.reason = StopReason::kStopText;
    return false;
  }
  result_.reason = StopReason::kLength;
  return result_.tokens.size() < options_.max_tokens;
}

bool Generation::Take(int32_t id) {
  if (!TakeToken(id)) return false;
  if (options_.cancel != nullptr && options_.cancel->load()) {
    result_.reason = StopReason::kCancelled;
    return false;
  }
  if (session_.position() >= session_.context()) {
    result_.reason = StopReason::kContext;
    return false;
  }
  return true;
}

GenerateResult Generation::Finish() {
  Emit(stops_.Push(decoder_.Finish()));
  Emit(stops_.Finish());
  result_.stats = session_.stats();
  result_.stats -= before_;
  return std::move(result_);
}

}  // namespace ecphory
