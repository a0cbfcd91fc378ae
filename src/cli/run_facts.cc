#include "run_facts.h"

#include <algorithm>
#include <optional>

#include "info_json.h"
#include "prefill_flags.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

// None where nothing was timed.
std::optional<double> PerSecond(uint64_t count, double seconds) {
  if (count == 0 || !(seconds > 0)) return std::nullopt;
  return static_cast<double>(count) / seconds;
}

// The clock of the generation runs from the first token on.
std::optional<double> GeneratedPerSecond(const GenerateResult& result) {
  const size_t timed = result.tokens.empty() ? 0 : result.tokens.size() - 1;
  return PerSecond(timed, result.generate_seconds);
}

std::string RateText(std::optional<double> rate) {
  return rate ? " at " + HumanRate(*rate) + " tokens/s" : "";
}

Json RateJson(std::optional<double> rate) {
  return rate ? Json(*rate) : Json(nullptr);
}

// "0.1 ms exposed of 4.2 ms reading (p99 12 us a token)".
std::string WaitText(const SessionStats& stats) {
  std::string text =
      Format("%.1f ms exposed of %.1f ms reading",
             1e3 * stats.engram_wait_seconds, 1e3 * stats.engram_read_seconds);
  if (stats.engram_token_wait.count() > 0) {
    text += Format(" (p99 %.0f us a token)",
                   1e6 * stats.engram_token_wait.Quantile(0.99));
  }
  return text;
}

// ", 5,376 of them through 20 of 40 layers", where layers were skipped.
std::string SkippedText(const SessionStats& stats, uint32_t n_layers) {
  if (stats.skipped_tokens == 0) return "";
  const uint64_t left_out = stats.skipped_layer_passes / stats.skipped_tokens;
  return ", " + Grouped(stats.skipped_tokens) +
         Format(" of them through %llu of %u layers",
                static_cast<unsigned long long>(n_layers - left_out), n_layers);
}

Json PercentilesJson(const DurationHistogram& durations) {
  return Json{{"count", durations.count()},
              {"p50", durations.Quantile(0.50)},
              {"p95", durations.Quantile(0.95)},
              {"p99", durations.Quantile(0.99)}};
}

}  // namespace

Json EngramIoJson(const Model& model) {
  const EngramIoFacts& io = model.engram_io();
  return Json{{"place", io.place},
              {"mode", io.mode},
              {"direct", io.direct},
              {"fallback", io.fallback},
              {"reason", io.reason}};
}

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
  std::string line =
      Format("[%llu prompt tokens",
             static_cast<unsigned long long>(result.prompt_tokens)) +
      RateText(PerSecond(result.prompt_tokens, result.prompt_seconds)) +
      SkippedText(stats, model->config().n_layers);
  line += Format(
      "; %zu generated%s; first token after %.2f s", result.tokens.size(),
      RateText(GeneratedPerSecond(result)).c_str(), start_to_first_token);
  line += "; Engram: " + Grouped(stats.engram_rows) + " rows, " +
          Grouped(stats.engram_rows_read) + " read, " + WaitText(stats);
  line += use.peak_bytes == 0
              ? "; peak memory unknown (no /proc)"
              : "; peak memory " + HumanBytes(use.anonymous_bytes) + " (" +
                    HumanBytes(plan.Total()) + " planned) + " +
                    HumanBytes(use.file_bytes) + " of mapped file";
  if (device) {
    const uint64_t more = device->in_use_before + device->taken;
    line += "; GPU memory " + HumanBytes(device->taken) + " (" +
            HumanBytes(device->Total()) + " planned), " +
            HumanBytes(device->in_use - std::min(device->in_use, more)) +
            " of the driver's, above " + HumanBytes(device->in_use_before);
  }
  line += std::string("; stopped: ") + StopReasonName(result.reason) + "]";
  return line;
}

Json RunFacts::ToJson() const {
  const MemoryUse use = memory.Use();
  const SessionStats& stats = result.stats;
  Json json{{"text", result.text},
            {"tokens", result.tokens},
            {"stop_reason", StopReasonName(result.reason)},
            {"model", model->info().path},
            {"backend", model->backend()},
            {"threads", model->threads()},
            {"seed", seed},
            {"prompt",
             {{"tokens", result.prompt_tokens},
              {"seconds", result.prompt_seconds},
              {"tokens_per_second", RateJson(PerSecond(result.prompt_tokens,
                                                       result.prompt_seconds))},
              {"prefill", PrefillName(prefill)},
              {"skipped_tokens", stats.skipped_tokens},
              {"skipped_layer_passes", stats.skipped_layer_passes}}},
            {"generation",
             {{"tokens", result.tokens.size()},
              {"seconds", result.generate_seconds},
              {"tokens_per_second", RateJson(GeneratedPerSecond(result))}}},
            {"start_to_first_token_seconds", start_to_first_token},
            {"engram",
             {{"rows", stats.engram_rows},
              {"rows_read", stats.engram_rows_read},
              {"cache_hits", stats.engram_cache_hits},
              {"bytes_read", stats.engram_bytes_read},
              {"read_seconds", stats.engram_read_seconds},
              {"wait_seconds", stats.engram_wait_seconds},
              {"token_read_seconds", PercentilesJson(stats.engram_token_read)},
              {"token_wait_seconds", PercentilesJson(stats.engram_token_wait)},
              {"io", EngramIoJson(*model)}}},
            {"memory",
             {{"peak_resident_bytes", use.peak_bytes},
              {"anonymous_bytes", use.anonymous_bytes},
              {"mapped_file_bytes", use.file_bytes},
              {"planned_bytes", plan.Total()},
              {"engram_cache_bytes", model->engram_io().cache_bytes}}}};
  if (device) json["device"] = DevicePlanJson(*device);
  return json;
}

}  // namespace ecphory::cli
