// Sizes of the models whose operators are measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ecphory/bench.h"

namespace ecphory::measure {

struct MatrixShape {
  size_t rows;
  size_t cols;
  // Blocks of rows with an input each, as the heads' groups have.
  size_t groups = 1;
};

// Tokens that go to the experts, and how many of those exist.
struct ExpertPass {
  size_t tokens;
  size_t experts;
};

struct Sizes {
  const char* name;
  size_t hidden;   // D
  size_t streams;  // H
  size_t heads;
  size_t head_dim;  // d
  size_t inner;     // of an expert
  size_t experts;
  size_t topk_experts;
  size_t window;  // W
  size_t index_heads;
  size_t index_dim;
  size_t index_topk;
  uint64_t entries;  // compressed, that attention selects from
  std::vector<MatrixShape> token_shapes;
  std::vector<MatrixShape> prompt_shapes;
  std::vector<ExpertPass> expert_passes;  // in every packed format
  std::vector<ExpertPass> long_passes;    // in packed FP4 only
  std::vector<uint64_t> contexts;         // entries of index scores, one token
  uint64_t prompt_context;                // likewise, of a prompt
  uint64_t smallest_set;  // bytes of the largest matrix, in F32, and more
};

inline constexpr size_t kPromptTokens = 512;  // of a pass

const Sizes& SizesOf(BenchSizes sizes);

}  // namespace ecphory::measure
