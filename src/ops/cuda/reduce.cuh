// Sums over the threads of a block.
#pragma once

#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// The sum over a block of kThreads (a multiple of 32), in every thread and in
// an order that depends on kThreads only. `shared` holds kWarp floats and may
// be used again after the call.
template <unsigned kThreads>
__device__ inline float BlockSum(float value, float* shared) {
  value = WarpSum(value);
  if constexpr (kThreads == kWarp) return value;
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < kThreads / kWarp; ++w) sum += shared[w];
  __syncthreads();
  return sum;
}

}  // namespace ecphory::cuda
