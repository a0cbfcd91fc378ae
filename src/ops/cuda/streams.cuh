// Expand and collapse of one channel, for any H.
#pragma once

#include "ops/cuda/codec.cuh"
#include "ops/hyper_connection.h"

namespace ecphory::cuda {

__device__ inline float MaybeRound(float x, bool round) {
  return round ? RoundToBF16(x) : x;
}

// h[k] of one channel, in place; streams <= kMaxStreams.
__device__ inline void ExpandChannel(const float* post, const float* comb,
                                     float y, size_t streams, bool round,
                                     float* h) {
  float old[kMaxStreams];
  for (size_t j = 0; j < streams; ++j) old[j] = h[j];
  for (size_t k = 0; k < streams; ++k) {
    float sum = post[k] * y;
    for (size_t j = 0; j < streams; ++j) {
      sum = fmaf(comb[j * streams + k], old[j], sum);
    }
    h[k] = MaybeRound(sum, round);
  }
}

// One channel of the collapse; `column` points at it in stream 0.
template <typename Args>
__device__ float Collapsed(const float* pre, const float* column,
                           const Args& a) {
  float x = pre[0] * column[0];
  for (size_t s = 1; s < a.streams; ++s) {
    x = fmaf(pre[s], column[s * a.dim], x);
  }
  return MaybeRound(x, a.round_bf16);
}

}  // namespace ecphory::cuda
