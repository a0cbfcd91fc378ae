// How a token is drawn from logits.
#pragma once

#include <cstdint>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

// Each filter sees what the one before it left: repeat penalty, top-k, top-p,
// min-p, then temperature. The filters act on the model's own distribution, so
// that the temperature never changes which tokens are possible.
struct ECPHORY_EXPORT SamplerOptions {
  float temperature = 0.8f;     // 0 = greedy, whatever the filters say
  uint32_t top_k = 0;           // 0 = off
  float top_p = 1.0f;           // fewest best tokens that reach this mass
  float min_p = 0.05f;          // relative to the best token
  float repeat_penalty = 1.0f;  // > 1 discourages the last `repeat_window` ids
  uint32_t repeat_window = 64;
  uint64_t seed = 0;
  Status Validate() const;  // names the option at fault
};

}  // namespace ecphory
