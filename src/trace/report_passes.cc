#include "trace/report_passes.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "trace/gate_observer.h"
#include "trace/reuse.h"

namespace ecphory::trace {

namespace {

constexpr int kSpeedRuns = 2;

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

Result<std::unique_ptr<Session>> OpenSession(
    const std::shared_ptr<const Model>& model,
    const EngramReportOptions& options, bool engram) {
  SessionOptions session;
  session.context = options.context;
  session.chunk = options.chunk;
  session.engram = engram;
  return Session::Create(model, session);
}

// Running sums of gates and movements, by layer and stream.
class GateSums {
 public:
  explicit GateSums(const ModelConfig& config)
      : streams_(config.hc_mult), layers_(config.engram.layer_ids) {
    histograms_.resize(layers_.size() * streams_);
    for (size_t i = 0; i < histograms_.size(); ++i) {
      histograms_[i].layer = layers_[i / streams_];
      histograms_[i].stream = static_cast<uint32_t>(i % streams_);
      histograms_[i].bins.resize(kGateBins);
    }
  }

  void Add(size_t layer, std::span<const EngramStreamTrace> streams) {
    for (size_t s = 0; s < streams.size(); ++s) {
      EngramGateHistogram& h = histograms_[layer * streams_ + s];
      const auto bin = static_cast<uint32_t>(streams[s].gate *
                                             static_cast<float>(kGateBins));
      ++h.bins[std::min(bin, kGateBins - 1)];
      h.mean_gate += static_cast<double>(streams[s].gate);
      h.mean_move += static_cast<double>(streams[s].move);
    }
  }

  std::vector<EngramGateHistogram> Finish() {
    for (EngramGateHistogram& h : histograms_) {
      uint64_t count = 0;
      for (const uint64_t n : h.bins) count += n;
      if (count == 0) continue;
      h.mean_gate /= static_cast<double>(count);
      h.mean_move /= static_cast<double>(count);
    }
    return std::move(histograms_);
  }

 private:
  size_t streams_;
  std::vector<uint32_t> layers_;
  std::vector<EngramGateHistogram> histograms_;
};

void AddStore(const SessionStats& stats, EngramStoreUse* store) {
  store->rows += stats.engram_rows;
  store->cache_hits += stats.engram_cache_hits;
  store->rows_read += stats.engram_rows_read;
  store->bytes_read += stats.engram_bytes_read;
  store->read_seconds += stats.engram_read_seconds;
  store->wait_seconds += stats.engram_wait_seconds;
}

// Bits of one sequence's tokens appended to `bits`, in order.
Status RunSequence(const std::vector<int32_t>& sequence, bool with_bos,
                   Session* session, TensorObserver* observer,
                   PassControl* control, std::vector<float>* bits) {
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  if (!with_bos) bits->push_back(unknown);
  size_t vocab = 0;
  AppendOptions append;
  append.logits = LogitsWanted::kAll;
  append.observer = observer;
  append.cancel = control->options->cancel;
  append.on_logits = [&](size_t first, size_t count,
                         std::span<const float> logits) {
    vocab = logits.size() / count;
    for (size_t i = 0; i < count && first + i + 1 < sequence.size(); ++i) {
      bits->push_back(static_cast<float>(TokenBits(
          logits.subspan(i * vocab, vocab), sequence[first + i + 1])));
    }
    control->Advance(count);
    return Status::Ok();
  };
  return session->Append(sequence, append);
}

EngramPercentiles Percentiles(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  EngramPercentiles p;
  p.count = seconds.size();
  p.p50 = Quantile(seconds, .50);
  p.p90 = Quantile(seconds, .90);
  p.p95 = Quantile(seconds, .95);
  p.p99 = Quantile(seconds, .99);
  p.max = seconds.empty() ? 0 : seconds.back();
  return p;
}

struct SpeedRun {
  double prompt_seconds = 0;
  double decode_seconds = 0;
  std::vector<double> read, wait;  // of decode steps
};

// `prompt` in passes of a chunk, then `rest` one at a time.
Status RunSpeed(const std::shared_ptr<const Model>& model,
                std::span<const int32_t> prompt, std::span<const int32_t> rest,
                bool engram, PassControl* control, SpeedRun* run) {
  ECPHORY_ASSIGN_OR_RETURN(const auto session,
                           OpenSession(model, *control->options, engram));
  AppendOptions append;
  append.cancel = control->options->cancel;
  auto start = std::chrono::steady_clock::now();
  ECPHORY_RETURN_IF_ERROR(session->Append(prompt, append));
  run->prompt_seconds = Seconds(start);
  start = std::chrono::steady_clock::now();
  SessionStats before = session->stats();
  for (size_t i = 0; i < rest.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(session->Append(rest.subspan(i, 1), append));
    const SessionStats after = session->stats();
    run->read.push_back(after.engram_read_seconds - before.engram_read_seconds);
    run->wait.push_back(after.engram_wait_seconds - before.engram_wait_seconds);
    before = after;
  }
  run->decode_seconds = Seconds(start);
  control->Advance(prompt.size() + rest.size());
  return {};
}

void KeepFaster(const SpeedRun& run, bool first, double* prompt,
                double* decode) {
  *prompt = first ? run.prompt_seconds : std::min(*prompt, run.prompt_seconds);
  *decode = first ? run.decode_seconds : std::min(*decode, run.decode_seconds);
}

}  // namespace

void PassControl::Advance(uint64_t tokens) {
  done += tokens;
  if (options->progress) options->progress(phase, done, total);
}

Windows CutText(std::span<const int32_t> tokens, int32_t bos,
                uint32_t context) {
  Windows windows;
  windows.with_bos = bos >= 0 && context > 1;
  const size_t step = context - (windows.with_bos ? 1 : 0);
  for (size_t at = 0; at < tokens.size(); at += step) {
    std::vector<int32_t> sequence;
    if (windows.with_bos) sequence.push_back(bos);
    const auto part = tokens.subspan(at, std::min(step, tokens.size() - at));
    sequence.insert(sequence.end(), part.begin(), part.end());
    windows.sequences.push_back(std::move(sequence));
  }
  return windows;
}

double TokenBits(std::span<const float> logits, int32_t token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  const double own = logits[static_cast<size_t>(token)];
  return (max + std::log(sum) - own) / std::log(2.0);
}

Result<PassResult> RunPass(const std::shared_ptr<const Model>& model,
                           const std::vector<Windows>& texts, bool engram,
                           PassControl* control) {
  PassResult result;
  GateSums sums(model->config());
  for (const Windows& text : texts) {
    for (const std::vector<int32_t>& sequence : text.sequences) {
      ECPHORY_ASSIGN_OR_RETURN(const auto session,
                               OpenSession(model, *control->options, engram));
      GateObserver observer(model->config().engram.layer_ids,
                            [&](size_t, size_t layer,
                                std::span<const EngramStreamTrace> streams) {
                              sums.Add(layer, streams);
                            });
      ECPHORY_RETURN_IF_ERROR(
          RunSequence(sequence, text.with_bos, session.get(),
                      engram ? &observer : nullptr, control, &result.bits));
      AddStore(session->stats(), &result.store);
    }
  }
  if (engram) result.gates = sums.Finish();
  return result;
}

Result<DecodeResult> MeasureSpeeds(const std::shared_ptr<const Model>& model,
                                   std::span<const int32_t> tokens,
                                   PassControl* control) {
  const EngramReportOptions& options = *control->options;
  const size_t decode =
      std::min<size_t>(options.decode_tokens, tokens.size() / 2);
  const auto used =
      tokens.first(std::min<size_t>(tokens.size(), options.context));
  const size_t steps = std::min(decode, used.size() / 2);
  const auto prompt = used.first(used.size() - steps);
  const auto rest = used.last(steps);
  DecodeResult result;
  result.speed.prompt_tokens = prompt.size();
  result.speed.decode_tokens = rest.size();
  control->total = used.size() * 2 * kSpeedRuns;
  for (int i = 0; i < kSpeedRuns; ++i) {
    SpeedRun on, off;
    ECPHORY_RETURN_IF_ERROR(RunSpeed(model, prompt, rest, true, control, &on));
    ECPHORY_RETURN_IF_ERROR(
        RunSpeed(model, prompt, rest, false, control, &off));
    KeepFaster(on, i == 0, &result.speed.prompt_seconds_on,
               &result.speed.decode_seconds_on);
    KeepFaster(off, i == 0, &result.speed.prompt_seconds_off,
               &result.speed.decode_seconds_off);
    if (i > 0) continue;  // the first run, before its rows are all cached
    result.read = Percentiles(std::move(on.read));
    result.wait = Percentiles(std::move(on.wait));
  }
  return result;
}

}  // namespace ecphory::trace
