// Pools `ratio` tokens into one latent: per channel a softmax of the gates
// over the group's tokens, weighted sum of kv.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

struct PoolGroupsArgs {
  const float* kv = nullptr;    // ring [capacity, dim], token p at p % capacity
  const float* gate = nullptr;  // ring [capacity, dim]
  size_t capacity = 0;
  size_t dim = 0;
  size_t ratio = 0;          // tokens per group, >= 2
  uint64_t first_group = 0;  // covers tokens [first_group * ratio, ...)
  size_t groups = 0;
  float* latent = nullptr;  // [groups, dim]
};

}  // namespace ecphory
