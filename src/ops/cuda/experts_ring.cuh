// The products of experts that are all of FP4 for some tens of tokens, on
// compute capability 9.0: weights through a ring in shared memory.
#pragma once

#include "ops/moe.h"

namespace ecphory::cuda {

// Hidden vectors [tokens * topk, inner] and then outputs [tokens * topk, dim]
// of all choices, of which there are no more than kFewSlots. `of_host`: the
// same call with experts that the host may look at. False, with nothing done,
// where these kernels do not take all of the experts.
bool RunRing(const ExpertsArgs& of_device, const ExpertsArgs& of_host,
             float* hidden, float* out);

}  // namespace ecphory::cuda
