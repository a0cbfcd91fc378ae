// The forward passes of a report: losses, gates, speeds, latencies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ecphory/engram_report.h"
#include "ecphory/session.h"

namespace ecphory::trace {

// A text cut into sequences of at most `context` tokens, begin of text
// included where the model wants one.
struct Windows {
  std::vector<std::vector<int32_t>> sequences;
  bool with_bos = false;  // then every token of the text is predicted, else all
                          // but the first of each sequence
};
// `bos` < 0: none.
Windows CutText(std::span<const int32_t> tokens, int32_t bos, uint32_t context);

// What one pass over texts of one kind found.
struct PassResult {
  std::vector<float> bits;  // of each token of the texts; NaN: not predicted
  std::vector<EngramGateHistogram> gates;  // with Engram on
  EngramStoreUse store;
};

// Progress and cancellation of a report, passed down.
struct PassControl {
  std::string phase;
  const EngramReportOptions* options = nullptr;
  uint64_t done = 0;
  uint64_t total = 0;
  void Advance(uint64_t tokens);
};

// Teacher-forced: every token's bits given those before it.
Result<PassResult> RunPass(const std::shared_ptr<const Model>& model,
                           const std::vector<Windows>& texts, bool engram,
                           PassControl* control);

struct DecodeResult {
  EngramSpeed speed;
  EngramPercentiles read, wait;  // of the steps with Engram on
};
// Speeds with Engram on and off in turn, twice; the faster run of each counts.
Result<DecodeResult> MeasureSpeeds(const std::shared_ptr<const Model>& model,
                                   std::span<const int32_t> tokens,
                                   PassControl* control);

// -log2 softmax(logits)[token].
double TokenBits(std::span<const float> logits, int32_t token);

}  // namespace ecphory::trace
