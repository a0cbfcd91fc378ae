#include "run_facts.h"

#include <algorithm>

#include "sizes.h"

namespace ecphory::cli {

namespace {

double PerSecond(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// The clock of the generation runs from the first token on.
double GeneratedPerSecond(const GenerateResult& result) {
  const size_t timed = result.tokens.empty() ? 0 : result.tokens.size() - 1;
  return PerSecond(timed, result.generate_seconds);
}

}  // namespace

void MemoryWatch::Sample() {
  anonymous_peak_ = std::max(anonymous_peak_, ReadMemoryUse().anonymous_bytes);
}

MemoryUse MemoryWatch::Use() const {
  MemoryUse use = ReadMemoryUse();
  use.anonymous_bytes = std::max(use.anonymous_bytes, anonymous_peak_);
  return use;
}

std::string RunFacts::ToLine() const {
  const MemoryUse use = memory.Use();
  const SessionStats& stats = result.stats;
  std::string line = Format(
      "[%llu prompt tokens at %.0f tokens/s; %zu generated at %.0f tokens/s; "
      "first token after %.2f s",
      static_cast<unsigned long long>(result.prompt_tokens),
      PerSecond(result.prompt_tokens, result.prompt_seconds),
      result.tokens.size(), GeneratedPerSecond(result), start_to_first_token);
  line += "; Engram: " + Grouped(stats.engram_rows) + " rows, " +
          HumanBytes(stats.engram_bytes_read) + " read, waited " +
          Format("%.1f ms", 1e3 * stats.engram_wait_seconds);
  line += use.peak_bytes == 0
              ? "; peak memory unknown (no /proc)"
              : "; peak memory " + HumanBytes(use.anonymous_bytes) + " + " +
                    HumanBytes(use.file_bytes) + " of mapped file";
  line += std::string("; stopped: ") + StopReasonName(result.reason) + "]";
  return line;
}

Json RunFacts::ToJson() const {
  const MemoryUse use = memory.Use();
  const SessionStats& stats = result.stats;
  return Json{{"text", result.text},
              {"tokens", result.tokens},
              {"stop_reason", StopReasonName(result.reason)},
              {"model", model->info().path},
              {"backend", model->backend()},
              {"threads", model->threads()},
              {"seed", seed},
              {"prompt",
               {{"tokens", result.prompt_tokens},
                {"seconds", result.prompt_seconds},
                {"tokens_per_second",
                 PerSecond(result.prompt_tokens, result.prompt_seconds)}}},
              {"generation",
               {{"tokens", result.tokens.size()},
                {"seconds", result.generate_seconds},
                {"tokens_per_second", GeneratedPerSecond(result)}}},
              {"start_to_first_token_seconds", start_to_first_token},
              {"engram",
               {{"rows", stats.engram_rows},
                {"rows_read", stats.engram_rows_read},
                {"bytes_read", stats.engram_bytes_read},
                {"wait_seconds", stats.engram_wait_seconds}}},
              {"memory",
               {{"peak_resident_bytes", use.peak_bytes},
                {"anonymous_bytes", use.anonymous_bytes},
                {"mapped_file_bytes", use.file_bytes}}}};
}

}  // namespace ecphory::cli
