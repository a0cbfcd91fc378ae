// What the ways of choosing the best scores share; ops/cuda/select.cu chooses.
#pragma once

#include <cstdint>

#include "ops/cuda/stream.cuh"
#include "ops/indexer.h"

namespace ecphory::cuda {

// Larger floats have larger codes. 0 is the code of no number: it marks what
// cannot be chosen.
__device__ inline uint32_t CodeOf(float x) {
  if (!isfinite(x)) return 0;
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);  // -0 is 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The entries above `code` are all taken, and of those equal to it the first
// `ties`.
struct Cut {
  uint32_t code;
  unsigned ties;
};

// A device with clusters, and entries enough for one.
bool TakesCluster(size_t entries);
void ClusterSelectTopk(const SelectTopkArgs& args);
void ClusterCandidateBlocks(const CandidateBlocksArgs& args);

}  // namespace ecphory::cuda
