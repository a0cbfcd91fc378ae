// The products of experts for many slots on warpgroups (ops/cuda/
// wide_products.cuh): FP8 and FP4 weights on compute capability 9.0.
#pragma once

#include "ops/cuda/experts_tiles.cuh"

namespace ecphory::cuda {

bool HasWideExperts(size_t n_experts);

// Slots of an expert that are multiplied at a time.
int WideTileSlots(size_t slots, size_t n_experts);

// One step, hidden vectors or outputs, of grouped slots with groups.wide, for
// experts of those formats that TilesTake() accepts. `in`: rows of tokens, or
// of slots; step.in has room for the parts of all slots' (PlanTiles()). `one`:
// an expert that the host may look at, or null.
template <bool kHidden>
void LaunchWideExperts(const ExpertsTiles& step, const float* in,
                       const Expert* one);

}  // namespace ecphory::cuda
