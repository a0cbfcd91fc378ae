// How much memory the CUDA operators keep from call to call (ScratchBytes in
// stream.cuh): they are called, of all shapes that passes have, in a stream
// that only notes what they ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "ecphory/status.h"
#include "ops/cpu/scratch_plan.h"
#include "ops/cuda/stream.h"

namespace ecphory::cuda {

// Bytes by purpose, after forward passes of `shape`. No work of the stream is
// under way, nothing is done, and kernels are loaded.
Result<std::map<const void*, size_t>> RehearseScratch(const ScratchShape& shape,
                                                      Stream& stream);

}  // namespace ecphory::cuda
