// --prefill and --full-prefill: which layers the tokens of a prompt pass.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>

#include "ecphory/session.h"

namespace ecphory::cli {

struct PrefillFlags {
  std::optional<Prefill> mode;  // --prefill
  bool full = false;            // --full-prefill
  uint32_t first_pass = 0;      // --prefill N; 0: no pass of its own

  // kInvalidArgument when the two contradict each other.
  Result<Prefill> Mode() const;
};

// `first_pass`: --prefill also takes a number of tokens.
void AddPrefillFlags(CLI::App& app, PrefillFlags* flags, bool first_pass);

// --activations f32|bf16|int8.
void AddActivationsFlag(CLI::App& app, Activations* activations);

// "skip", "full", "replay".
const char* PrefillName(Prefill prefill);

}  // namespace ecphory::cli
