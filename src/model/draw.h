// Sampling options and ids so far as arguments of the operator that draws.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/sampler_options.h"
#include "ecphory/status.h"
#include "ops/ops.h"
#include "ops/sample.h"

namespace ecphory {

// The ids of the window that are below `vocab`, each once; none when the
// penalty is off.
std::vector<int32_t> PenalizedIds(const SamplerOptions& options,
                                  std::span<const int32_t> recent,
                                  size_t vocab);

// Of valid options. Logits, penalized ids and outputs are left to the caller.
SampleRow DrawnRow(const SamplerOptions& options, uint64_t random);

// From logits of the host, by operators that compute there. `row` has neither
// them nor the penalized ids yet.
Sampled DrawOnHost(const Ops& ops, std::span<const float> logits, SampleRow row,
                   std::span<const int32_t> penalized);

}  // namespace ecphory
