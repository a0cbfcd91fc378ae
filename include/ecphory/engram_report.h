// What the Engram memory costs and gives over whole texts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/model.h"
#include "ecphory/status.h"

namespace ecphory {

// A text and the kind it stands for ("prose", "code").
struct EngramReportText {
  std::string kind;
  std::vector<int32_t> tokens;  // without begin of text
};

// How often rows come back, within windows of so many tokens. Shares of 0..1.
struct EngramReuse {
  uint32_t window = 0;
  // By n-gram size 2..max_ngram, then over all of them:
  std::vector<double> within;  // of all requests: asked before in this window
  std::vector<double> across;  // of a window's distinct rows: asked in an
                               // earlier window
};

// What an exact least-recently-used cache of rows would answer.
struct EngramCachePoint {
  uint64_t bytes = 0;   // of rows, without bookkeeping
  double hit_rate = 0;  // of all requests
};

inline constexpr uint32_t kGateBins = 20;  // of 0.05

struct EngramGateHistogram {
  uint32_t layer = 0;
  uint32_t stream = 0;
  std::vector<uint64_t> bins;  // [kGateBins]
  double mean_gate = 0;
  double mean_move = 0;  // |gate v| / |h|
};

// A token that the memory helps or hurts to predict.
struct EngramTokenEffect {
  uint64_t position = 0;  // in the kind's tokens
  int32_t id = 0;
  std::string before;  // bytes of the few tokens before
  std::string piece;
  double bits_on = 0;   // -log2 of its probability
  double bits_off = 0;  // the same with every gate shut
};

struct EngramLoss {
  uint64_t tokens = 0;  // predicted
  uint64_t bytes = 0;   // of their text
  double bits_on = 0;   // sums
  double bits_off = 0;
};

// Without observers; seconds of wall time.
struct EngramSpeed {
  uint64_t prompt_tokens = 0;
  double prompt_seconds_on = 0, prompt_seconds_off = 0;
  uint64_t decode_tokens = 0;  // one at a time
  double decode_seconds_on = 0, decode_seconds_off = 0;
};

// Seconds of decode steps.
struct EngramPercentiles {
  uint64_t count = 0;
  double p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

// What the store did for the texts' prompt passes with Engram on.
struct EngramStoreUse {
  uint64_t rows = 0;        // asked for
  uint64_t cache_hits = 0;  // distinct rows of a request that the cache had
  uint64_t rows_read = 0;
  uint64_t bytes_read = 0;
  double read_seconds = 0;  // rows were under way
  double wait_seconds = 0;  // layers stood still
};

struct EngramKindReport {
  std::string kind;
  uint64_t texts = 0;
  uint64_t tokens_given = 0;
  uint64_t tokens = 0;  // used: see EngramReportOptions::max_tokens
  std::vector<EngramReuse> reuse;
  double best_hit_rate = 0;  // of a cache that forgets nothing
  std::vector<EngramCachePoint> cache;
  std::vector<EngramGateHistogram> gates;  // [layers][streams]
  EngramStoreUse store;
  EngramPercentiles read, wait;  // of decode steps
  EngramLoss loss;
  EngramSpeed speed;
  std::vector<EngramTokenEffect> helped, hurt;  // most first
};

struct EngramTableResidency {
  uint32_t layer = 0;
  uint64_t bytes = 0;
  uint64_t resident_before = 0;  // of them in the page cache
  uint64_t resident_after = 0;
};

struct EngramReportConditions {
  std::string path, name, version;
  std::string backend;
  uint32_t threads = 0;
  std::string processor;  // "" where unknown
  uint64_t memory_bytes = 0;
  std::string system;  // kernel
  EngramIoFacts io;
  uint64_t cache_bytes = 0;  // of the store
  uint32_t context = 0;      // tokens of a window of the model's passes
  uint32_t chunk = 0;        // tokens of a pass
  std::vector<EngramTableResidency> tables;
};

struct EngramReport {
  EngramReportConditions conditions;
  uint32_t max_ngram = 0;
  uint32_t rows_per_token = 0;  // over all layers
  std::vector<EngramKindReport> kinds;
};

struct EngramReportOptions {
  std::vector<uint32_t> windows = {64, 256, 1024, 4096};
  std::vector<uint64_t> cache_bytes = {uint64_t{1} << 18, uint64_t{1} << 20,
                                       uint64_t{1} << 22, uint64_t{1} << 24,
                                       uint64_t{1} << 26, uint64_t{1} << 28};
  uint32_t max_tokens = 65536;  // of a kind; later ones are not used
  uint32_t context = 0;         // 0 = min(model's maximum, 2048)
  uint32_t chunk = 256;
  uint32_t decode_tokens = 256;  // of a kind
  uint32_t top = 12;             // helped and hurt tokens of a kind
  std::function<void(const std::string& phase, uint64_t done, uint64_t total)>
      progress;
  const std::atomic<bool>* cancel = nullptr;
};

// Texts of a kind are used one after another, each as a fresh sequence, in
// windows of `context` tokens. kInvalidArgument for a model without Engram or
// without texts; kOutOfRange names an id outside the vocabulary.
ECPHORY_EXPORT Result<EngramReport> ReportEngram(
    const std::shared_ptr<const Model>& model,
    const std::vector<EngramReportText>& texts,
    const EngramReportOptions& options);

ECPHORY_EXPORT std::string EngramReportJson(const EngramReport& report);
ECPHORY_EXPORT std::string EngramReportTextPage(const EngramReport& report);
// One self-contained page: no other file, no script, no network.
ECPHORY_EXPORT std::string EngramReportHtml(const EngramReport& report);

}  // namespace ecphory
