// What becomes of an expert's gate, up and outputs.
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/cuda/math.cuh"
#include "ops/moe.h"

namespace ecphory::cuda {

__device__ inline float Swiglu(const ExpertsArgs& a, float gate, float up,
                               float weight) {
  gate = MaybeRound(gate, a.round_bf16);
  up = MaybeRound(up, a.round_bf16);
  if (a.swiglu_limit > 0) {
    // Comparisons let a NaN through, which minima would hide.
    if (gate > a.swiglu_limit) gate = a.swiglu_limit;
    if (fabsf(up) > a.swiglu_limit) up = copysignf(a.swiglu_limit, up);
  }
  return MaybeRound(gate * Sigmoid(gate) * up * weight, a.round_bf16);
}

}  // namespace ecphory::cuda
