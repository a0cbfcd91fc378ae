// Rotary position: adjacent pairs (2i, 2i+1) of the last rope_dim channels
// rotate as complex numbers by position * inv_freq[i] (the fp32 product).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

struct RopeArgs {
  float* x = nullptr;                  // [tokens, heads, dim], in place
  const int64_t* positions = nullptr;  // [tokens]
  const float* inv_freq = nullptr;     // [rope_dim / 2]
  size_t tokens = 0;
  size_t heads = 0;
  size_t dim = 0;
  size_t rope_dim = 0;      // even, <= dim
  bool inverse = false;     // rotate back
  bool round_bf16 = false;  // the channels that are rotated
};

}  // namespace ecphory
