// Which tokens of a prompt pass which layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ecphory/config.h"
#include "ecphory/session.h"

namespace ecphory {

// How one Append runs its tokens [0, n). Those before `tail` pass the layers
// before the last KV source S (the encoder) and leave behind what S keeps of
// them; those from `tail` on pass every layer.
struct PrefillPlan {
  size_t tail = 0;
  // After this many tokens or more the state may be continued and saved; at a
  // count between 0 and it, it is not whole. 0: at any count.
  size_t whole = 0;

  bool skips() const { return tail > 0; }
  bool EncoderOnly(size_t token) const { return token < tail; }
  // Tokens of the pass that begins at `first`, of `chunk` at most; 0 at the
  // end.
  size_t PassAt(size_t first, size_t tokens, size_t chunk) const {
    return std::min(chunk, (EncoderOnly(first) ? tail : tokens) - first);
  }
};

// The layer S, or -1 where the model has no KV source and nothing is skipped.
int LastKvSource(const ModelConfig& config);

// Tokens from the first one that passes every layer to the first position at
// which all state is exact: (n_layers - 1 - S) * (sliding_window - 1).
uint64_t DecoderHalo(const ModelConfig& config);

// The plan for `tokens` tokens, as options.prefill asks for. With kSkip the
// tail is long enough that the state is that of the full pass bit for bit, the
// `chunk` tokens that Truncate may go back included.
PrefillPlan PlanPrefill(const ModelConfig& config,
                        const SessionOptions& options, size_t tokens);

// The fewest tokens whose plan skips; 0: no number of tokens does.
uint64_t ShortestSkipping(const ModelConfig& config,
                          const SessionOptions& options);

}  // namespace ecphory
