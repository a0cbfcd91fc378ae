// A step of experts whose slots are multiplied by tiles.
#pragma once

#include "ops/cuda/experts_slots.cuh"
#include "ops/cuda/experts_swiglu.cuh"
#include "ops/cuda/split_rows.cuh"

namespace ecphory::cuda {

// Hidden vectors from x by w1 and w3, or outputs from hidden vectors by w2.
struct ExpertsTiles {
  ExpertsArgs args;
  Groups groups;
  SplitRows in;  // of tokens, or of slots
  float* out;    // [slots, rows]
};

}  // namespace ecphory::cuda
