// How much memory the CUDA operators keep from call to call (ScratchBytes in
// stream.cuh), for the memory plan.
#pragma once

#include <cstdint>

#include "ops/cpu/scratch_plan.h"

namespace ecphory::cuda {

// Of one queue, after forward passes of `shape`.
uint64_t KeptBytes(const ScratchShape& shape);

}  // namespace ecphory::cuda
