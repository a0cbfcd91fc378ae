// The best of many scores, without sorting them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace ecphory {

// The `count` best finite scores (all when fewer); ties keep the lower index.
struct PickBest {
  const float* scores = nullptr;  // [n]
  size_t n = 0;                   // < 2^31
  // Entry i can be picked iff mask[i / block_size] != 0; null: all can.
  const uint8_t* mask = nullptr;  // [ceil(n / block_size)]
  size_t block_size = 0;          // of `mask`
  size_t count = 0;
  int32_t* picked = nullptr;  // [min(n, count)] ascending
};

// Returns how many were picked. Linear in n: each score is read twice at most.
size_t Run(const PickBest& pick, ThreadPool& pool);

}  // namespace ecphory
