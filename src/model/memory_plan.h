// What a session will take, from the configuration alone.
#pragma once

#include <cstdint>

#include "ecphory/config.h"
#include "ecphory/model.h"

namespace ecphory {

// Compressed entries and index keys of one token, over all KV sources, as
// stored with the model's rounding steps on. Exact: a source of ratio 2 counts
// half an entry a token (890 at released sizes).
double StateBytesPerToken(const ModelConfig& config);

// The part of the caches that does not grow with the context: window rings,
// open groups, the n-gram history.
uint64_t FixedStateBytes(const ModelConfig& config, uint32_t chunk);

// All caches at `context` tokens.
uint64_t StateBytes(const ModelConfig& config, uint32_t context,
                    uint32_t chunk);

// Activations of one forward pass over `chunk` tokens, and the logits of one.
uint64_t ScratchBytes(const ModelConfig& config, uint32_t context,
                      uint32_t chunk);

// All of the above; the weights' fields stay 0. `context` and `chunk` 0 mean
// the session defaults.
MemoryPlan PlanMemory(const ModelConfig& config, uint32_t context,
                      uint32_t chunk);

}  // namespace ecphory
