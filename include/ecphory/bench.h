// Speed, held against the bounds of the machine it is measured on.
//
// RunBench() measures the machine first (memory bandwidth, arithmetic), then
// operators at released shapes, then a whole model, each in turn with what
// bounds it. docs/bench.md says what is measured and how.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/model.h"
#include "ecphory/session.h"
#include "ecphory/status.h"

namespace ecphory {

// Of several rounds.
struct BenchSpread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double min = 0;
  double max = 0;
  uint32_t rounds = 0;
};

// What the machine does at best, on the threads of this run.
struct BenchYardstick {
  std::string name;  // "read", "read_huge", "copy", "update", "fma", ...
  std::string what;  // in words
  std::string unit;  // "B/s", "FLOP/s"
  BenchSpread value;
};

// One thing measured.
struct BenchFigure {
  std::string name;     // "matvec/F16/5120x1280"
  BenchSpread seconds;  // of a call
  double bytes = 0;     // that a call must move; 0: not counted
  double flops = 0;     // that a call must do; 0: not counted
  // The longer of bytes at bandwidth and flops at peak, as these were beside it
  // (median of rounds), and which of the yardsticks that is; 0 and "" where
  // nothing bounds it.
  std::string bound;
  double bound_seconds = 0;
  BenchSpread share;  // of each round: its bound over its time
};

// A part's share of the time of a decode step or a prefill.
struct BenchPart {
  std::string name;  // "experts", "mhc", ...
  double seconds = 0;
  double share = 0;
  uint64_t calls = 0;
};

// A model at one context: a step of one token, or of one of each of several
// sequences, or a prompt. The figure's bytes are those of weights and packed
// state, each counted once a pass; table rows come from disk and are not in
// them.
struct BenchPass {
  uint64_t context = 0;    // tokens before the pass
  uint32_t tokens = 0;     // of the pass
  uint32_t sequences = 1;  // that they are of
  double experts = 0;      // routed experts that a pass reads, of all layers
  BenchFigure figure;      // of the pass
  // Of a prefill: share of the rate of `sgemm` beside it; 0 without one.
  double of_sgemm = 0;
  double engram_wait_seconds = 0;  // of a pass: layers stood still for rows
  std::vector<BenchPart> parts;    // largest first
};

struct BenchModel {
  std::string path;
  std::string name;
  std::string backend;
  uint32_t threads = 0;
  std::string engram_place;  // "" without Engram
  std::string engram_io;     // "" unless the tables are on disk
  std::string activations;   // "f32", "bf16", "int8"
  double open_seconds = 0;
  double first_token_seconds = 0;  // opening, and a prompt of `prompt` tokens
  uint32_t prompt = 0;
  BenchPass prefill;
  // By context: of one sequence, then of BenchOptions::sequences.
  std::vector<BenchPass> decode;
  uint32_t routed_experts = 0;  // of the model, all layers together
};

// Pages under weights and inputs of operators; a model is held to their
// bandwidth, so it should be that of its own (kSmall: those of mapped files).
enum class BenchPages : uint8_t { kSmall, kHuge };

// Sizes of --ops: the released model's, or the bundled one's.
enum class BenchSizes : uint8_t { kReleased, kMini };

struct BenchOptions {
  bool ops = true;
  std::string model;           // path; empty: none
  ModelOptions model_options;  // threads and backend count for `ops` as well
  // Of the model's sessions; context, chunk and prefill are set for each
  // figure.
  SessionOptions session;
  std::string filter;    // of figures of `ops`: a part of the name; empty: all
  double seconds = 0.2;  // a figure and what bounds it, about
  uint32_t rounds = 7;   // a figure, in that time
  BenchSizes sizes = BenchSizes::kReleased;
  // Bytes that weights rotate over; 0: the larger of 256 MiB and four times the
  // last-level cache, or 16 MiB of kMini.
  uint64_t working_set = 0;
  BenchPages pages = BenchPages::kSmall;
  // A library with OpenBLAS's or oneDNN's fp32 product, as another yardstick;
  // empty: one of the system, or none.
  std::string sgemm;
  // Of `model`; by default 1024, or as many as it has room for.
  std::optional<std::vector<uint64_t>> contexts;
  uint32_t sequences = 1;  // more: steps of so many together as well
  // Tokens of a prefill; by default 512, or as many as there is room for.
  std::optional<uint32_t> prompt;
  // Called before each figure. false: stop, kCancelled.
  std::function<bool(const std::string& what, uint64_t done, uint64_t total)>
      progress;
};

struct BenchReport {
  // Conditions.
  std::string date;  // UTC, ISO 8601
  std::string system;
  std::string cpu;
  uint32_t processors = 0;
  uint64_t memory_bytes = 0;
  uint32_t threads = 0;
  std::string backend;
  std::string sizes;
  std::string pages;
  uint64_t working_set = 0;
  std::vector<BenchYardstick> yardsticks;
  std::vector<BenchFigure> ops;
  std::vector<BenchModel> models;  // none or one
  std::vector<std::string> notes;  // what was left out, and why
};

// Takes all of the threads it is told to, and memory of about twice
// options.working_set and the model's.
ECPHORY_EXPORT Result<BenchReport> RunBench(const BenchOptions& options);

// Names of the figures of `ops`, in order.
ECPHORY_EXPORT std::vector<std::string> BenchFigures(BenchSizes sizes);

}  // namespace ecphory
