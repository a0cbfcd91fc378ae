// The element-wise parts of an expert, kernels under experts.cc.
#pragma once

#include <cstddef>

namespace ecphory {

struct SwigluArgs {
  float* gate = nullptr;      // [n]; becomes weight * silu(min(gate, L)) * up
  const float* up = nullptr;  // [n], clamped to +-L
  size_t n = 0;
  float weight = 0;
  float limit = 0;  // L; off when 0
  bool round_bf16 = false;
};
void Swiglu(const SwigluArgs& args);

// y[i] += x[i] for i < n; x[i] is rounded to bf16 first if so wished.
void AddOutput(const float* x, size_t n, bool round_bf16, float* y);

}  // namespace ecphory
