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

// y[i] (+)= sum of slots[j][i] over j in order, for i in [begin, end).
struct SumSlotsArgs {
  const float* const* slots = nullptr;  // [count]
  size_t count = 0;
  size_t begin = 0;
  size_t end = 0;
  bool round_bf16 = false;  // each slot's value first
  bool accumulate = false;
  float* y = nullptr;
};
void SumSlots(const SumSlotsArgs& args);

}  // namespace ecphory
