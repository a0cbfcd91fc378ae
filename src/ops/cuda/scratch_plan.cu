#include "ops/cuda/scratch_plan.h"

#include <algorithm>

namespace ecphory::cuda {

namespace {

// An input as bf16 parts that add up to its fp32 values, for tensor cores.
constexpr uint64_t kMostParts = 3;
constexpr uint64_t kPartBytes = sizeof(uint16_t);

// Partial results of a few tokens, shared by all multiprocessors: bounded by
// what runs at a time (attention, mHC, products split along their depth).
constexpr uint64_t kFewTokensBytes = uint64_t{24} << 20;

uint64_t ProductBytes(const ScratchShape& shape) {
  uint64_t most = 0;
  for (const ScratchProduct& product : shape.products) {
    const uint64_t parts = product.input == MatmulInput::kBF16 ? 1 : kMostParts;
    most = std::max<uint64_t>(
        most, product.tokens * product.cols * parts * kPartBytes);
  }
  return most;
}

// Hidden vectors and outputs of every slot, and the parts of either input.
uint64_t ExpertBytes(const ScratchShape& shape) {
  uint64_t hidden = 0, out = 0, parts = 0;
  for (const ScratchExperts& experts : shape.experts) {
    const uint64_t slots = uint64_t{shape.tokens} * experts.topk;
    hidden = std::max(hidden, slots * experts.inner * sizeof(float));
    out = std::max(out, slots * shape.dim * sizeof(float));
    parts = std::max(
        {parts, shape.tokens * uint64_t{shape.dim}, slots * experts.inner});
  }
  const uint64_t count = shape.input == MatmulInput::kBF16 ? 1 : 2;
  return hidden + out + parts * count * kPartBytes;
}

// The best score of every block of entries.
uint64_t CandidateBytes(const ScratchShape& shape) {
  if (shape.block_size == 0) return 0;
  const uint64_t blocks =
      (shape.groups + shape.block_size - 1) / shape.block_size;
  return shape.index_tokens * blocks * sizeof(uint32_t);
}

}  // namespace

uint64_t KeptBytes(const ScratchShape& shape) {
  return ProductBytes(shape) + ExpertBytes(shape) + CandidateBytes(shape) +
         kFewTokensBytes;
}

}  // namespace ecphory::cuda
