// The ways in which index scores are computed; ops/cuda/index_scores.cu
// chooses.
#pragma once

#include "ops/calls.h"
#include "ops/indexer.h"

namespace ecphory::cuda {

// FP4 keys of 128 values, at most 32 heads.
bool TakesTensorCores(const IndexScoresArgs& args);
void TensorIndexScores(const Calls<IndexScoresArgs>& calls);

}  // namespace ecphory::cuda
