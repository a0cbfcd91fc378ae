// Models of released shape with random weights: to measure and to test on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

struct SynthModelOptions {
  // "v41-flash", "v41-narrow" (its layers at a tenth of the width), "v4-flash"
  // (GGUF only; this engine does not run it) or "mini", the bundled model's
  // shape.
  std::string preset = "v41-flash";
  // Cuts; 0: as the preset has it. Which layers a cut keeps is in docs/synth.md
  // and in SynthModelFacts.
  uint32_t layers = 0;
  uint32_t experts = 0;
  // About so many rows a table: primes decide. 0: the preset's, in a cut of the
  // layers at most 2,000,000.
  uint64_t engram_rows = 0;
  // "released" (FP8, FP4 and BF16 in a directory; MXFP4 experts, Q8_0 and F16
  // in GGUF), and for GGUF "q8_0", "q4_k" or "q2".
  std::string dtypes = "released";
  uint64_t seed = 1;
  // A name that ends in .gguf is a GGUF file; any other is a directory of
  // safetensors.
  std::string output = {};
  bool overwrite = false;  // replace a GGUF file; directories never
  uint32_t threads = 0;    // 0: the processors
  // Bytes done and in all; returning false cancels and leaves nothing behind.
  std::function<bool(uint64_t done, uint64_t total)> progress = {};
};

struct SynthModelFacts {
  std::string architecture;      // "deepseek41", "deepseek4"
  std::string format;            // "gguf", "safetensors"
  std::vector<uint32_t> layers;  // of the preset, that were kept
  uint64_t tensors = 0;
  uint64_t tensor_bytes = 0;  // in the files, GGUF: padding included
  uint64_t engram_bytes = 0;  // of those, tables
};

// What SynthModel would write; touches no file.
ECPHORY_EXPORT Result<SynthModelFacts> PlanSynthModel(
    const SynthModelOptions& options);

// Writes the model: the same bytes for the same options, on every machine and
// any number of threads. Refuses an output that exists (but see `overwrite`) or
// that the disk has no room for. The output appears under its name when it is
// whole.
ECPHORY_EXPORT Result<SynthModelFacts> SynthModel(
    const SynthModelOptions& options);

}  // namespace ecphory
