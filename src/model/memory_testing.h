// Models and sessions that the tests of memory plans have in common.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ecphory/session.h"
#include "ecphory/synth.h"
#include "io/test_directory.h"

namespace ecphory::testing::memory {

// A synthetic model of a preset and dtypes in the folder: one GGUF where `file`
// ends in .gguf, otherwise a directory. Its path.
inline std::string WriteModel(const TestDirectory& folder, const char* preset,
                              const char* dtypes, const char* file) {
  SynthModelOptions options;
  options.preset = preset;
  options.dtypes = dtypes;
  if (options.preset == "v41-narrow") {
    options.layers = 6;
    options.experts = 16;
  }
  options.engram_rows = 20'000;
  options.output = folder / file;
  const auto written = SynthModel(options);
  EXPECT_TRUE(written.ok()) << written.status().ToString();
  return options.output;
}

inline SessionOptions Passes(uint32_t context, uint32_t chunk,
                             Prefill prefill = Prefill::kFull,
                             Activations activations = Activations::kF32) {
  SessionOptions options;
  options.context = context;
  options.chunk = chunk;
  options.prefill = prefill;
  options.activations = activations;
  return options;
}

inline SessionOptions Without(bool engram, bool rounding) {
  SessionOptions options = Passes(2048, 256);
  options.engram = engram;
  options.state_rounding = rounding;
  return options;
}

}  // namespace ecphory::testing::memory
