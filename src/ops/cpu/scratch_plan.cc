#include "ops/cpu/scratch_plan.h"

#include <algorithm>
#include <cmath>

namespace ecphory {

uint64_t CpuScratchBytes(const ScratchShape& shape) {
  return MatmulScratchBytes(shape) + Int8ScratchBytes(shape) +
         ExpertsScratchBytes(shape) + HcScratchBytes(shape) +
         AttentionScratchBytes(shape) + IndexScratchBytes(shape) +
         SelectScratchBytes(shape);
}

// Were experts chosen at random, an expert's slots would be distributed about a
// mean with the mean for variance.
size_t LikelySlots(const ScratchExperts& experts, size_t tokens) {
  const double mean = static_cast<double>(tokens * experts.topk) /
                      static_cast<double>(experts.experts);
  const size_t most = static_cast<size_t>(mean + 3 * std::sqrt(mean)) + 1;
  return std::min(tokens, most);
}

std::vector<ScratchProduct> ProductsOf(const ScratchExperts& experts,
                                       const ScratchShape& shape) {
  const size_t slots = LikelySlots(experts, shape.tokens);
  return {{experts.up, experts.inner, shape.dim, slots, shape.input},
          {experts.down, shape.dim, experts.inner, slots, shape.input}};
}

}  // namespace ecphory
