// The ways in which attention is computed; ops/cuda/attention.cu chooses.
#pragma once

#include "ops/attention.h"
#include "ops/cuda/calls.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// What a token attends: window positions [first, first + window), then
// `rows - window` selected rows.
struct Span {
  uint64_t first;
  size_t window;
  size_t rows;
};

// By a whole block; `counter` is shared memory.
__device__ inline Span SpanOf(const AttentionArgs& a, size_t t,
                              size_t* counter) {
  const uint64_t last = a.first_position + t;
  const uint64_t behind = last + 1 > a.window ? last + 1 - a.window : 0;
  const uint64_t first = max(behind, a.window_begin);
  if (threadIdx.x == 0) *counter = 0;
  __syncthreads();
  if (a.selected != nullptr) {
    // Ids ascend and then are -1.
    for (size_t i = threadIdx.x; i < a.topk; i += blockDim.x) {
      const int32_t* const ids = a.selected + t * a.topk;
      const bool last_id = ids[i] >= 0 && (i + 1 == a.topk || ids[i + 1] < 0);
      if (last_id) *counter = i + 1;
    }
  }
  __syncthreads();
  const size_t window = last - first + 1;
  return {first, window, window + *counter};
}

// Rows as the release keeps them, 512 channels, 16 heads or more.
bool TakesTensorCores(const AttentionArgs& args);
void TensorAttention(const Calls<AttentionArgs>& calls);

}  // namespace ecphory::cuda
