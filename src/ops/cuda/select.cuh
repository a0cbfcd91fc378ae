// What the ways of choosing the best scores share; ops/cuda/select.cu chooses.
#pragma once

#include <cstdint>

#include "ops/cuda/calls.cuh"
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
void ClusterSelectTopk(const Calls<SelectTopkArgs>& calls);
void ClusterCandidateBlocks(const Calls<CandidateBlocksArgs>& calls);

// Entries few enough for the registers of a block: more of them where there are
// many tokens.
bool TakesHeld(const Calls<SelectTopkArgs>& calls);
void HeldSelectTopk(const Calls<SelectTopkArgs>& calls);

// The most entries that a call of some chooses from.
inline size_t MostEntries(const Calls<SelectTopkArgs>& calls) {
  size_t most = 0;
  for (const auto& args : calls) most = std::max(most, args.groups);
  return most;
}
inline size_t MostEntries(const Calls<CandidateBlocksArgs>& calls) {
  size_t most = 0;
  for (const auto& args : calls) {
    most = std::max(most, CeilDiv(args.groups, args.block_size));
  }
  return most;
}

}  // namespace ecphory::cuda
