// A sequence's state at any position, filled with random rows: what a step
// reads at a long context, without the prefill that would lead there.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "ecphory/session.h"
#include "ecphory/status.h"
#include "engram/hasher.h"
#include "model/caches.h"

namespace ecphory::measure {

// Random ids that are no image positions.
std::vector<int32_t> RandomTokens(const ModelConfig& config, size_t count,
                                  uint64_t seed);

// `options.context` tokens fit, `position` of them are there. Each window row,
// latent and index key is the packed form of other random values, as any text
// would leave them; `hasher` may be null.
Result<SequenceState> FilledState(const ModelConfig& config,
                                  const SessionOptions& options,
                                  uint64_t position,
                                  const engram::Hasher* hasher,
                                  ThreadPool& pool, Device& device);

}  // namespace ecphory::measure
