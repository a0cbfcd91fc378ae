// One token's attention, the kernel under attention.cc.
#pragma once

#include <cstddef>

namespace ecphory {

struct TokenAttention {
  const float* q = nullptr;            // [heads, dim]
  const float* const* rows = nullptr;  // [count] keys = values, dim floats each
  size_t count = 0;                    // >= 1
  size_t heads = 0;
  size_t dim = 0;
  const float* sink = nullptr;  // [heads]
  float scale = 0;              // > 0
  float* scores = nullptr;      // scratch [heads, count]
  float* out = nullptr;         // [heads, dim]
};

// The bits of a head's result depend on its own inputs only.
void AttendToken(const TokenAttention& token);

}  // namespace ecphory
