// How much working memory the operators keep from call to call (scratch.h):
// each says it beside its code, for the memory plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/matmul.h"
#include "tensor/matrix.h"
#include "tensor/row_codec.h"

namespace ecphory {

// A product y = x W^T of a forward pass.
struct ScratchProduct {
  WeightFormat format = WeightFormat::kF32;
  size_t rows = 0;
  size_t cols = 0;
  size_t tokens = 0;
  MatmulInput input = MatmulInput::kF32;
};

// A call of the experts: some of many, or the shared one.
struct ScratchExperts {
  WeightFormat up = WeightFormat::kF32;  // w1, w3
  WeightFormat down = WeightFormat::kF32;
  size_t experts = 0;
  size_t topk = 0;
  size_t inner = 0;
};

// Forward passes of `tokens` tokens and of one, as far as scratch depends on
// them.
struct ScratchShape {
  size_t threads = 1;
  size_t tokens = 0;
  size_t dim = 0;
  size_t streams = 0;
  MatmulInput input = MatmulInput::kF32;
  std::vector<ScratchProduct> products = {};  // but those of experts
  std::vector<ScratchExperts> experts = {};
  // Attention.
  size_t heads = 0;
  size_t head_dim = 0;
  size_t window = 0;
  bool window_only = false;  // some layers attend windows alone
  size_t topk = 0;           // compressed entries; 0: no layer attends any
  // The indexer, where topk is not 0.
  size_t groups = 0;        // compressed entries of a whole context
  size_t index_tokens = 0;  // that are scored together
  size_t index_heads = 0;
  size_t index_dim = 0;
  bool index_codes = false;  // keys are codes, and so are queries
  size_t block_size = 0;     // of candidate blocks; 0: there are none
  // What other backends ask for as well.
  RowFormat window_format = RowFormat::kF32;
  RowFormat latent_format = RowFormat::kF32;
  RowFormat key_format = RowFormat::kF32;
  WeightFormat streams_format = WeightFormat::kF32;  // of mHC's projections
  size_t vocab = 0;                                  // that is drawn from
  size_t drawn = 1;                                  // sequences at a time
};

// Of all threads together, if each of them takes its share of every operator.
// How many tokens choose the same expert is estimated. Left out is what takes a
// few kilobytes (rope, norms, the router).
uint64_t MatmulScratchBytes(const ScratchShape& shape);
uint64_t Int8ScratchBytes(const ScratchShape& shape);
uint64_t ExpertsScratchBytes(const ScratchShape& shape);
uint64_t HcScratchBytes(const ScratchShape& shape);
uint64_t AttentionScratchBytes(const ScratchShape& shape);
uint64_t IndexScratchBytes(const ScratchShape& shape);
uint64_t SelectScratchBytes(const ScratchShape& shape);

uint64_t CpuScratchBytes(const ScratchShape& shape);

// The most slots of `tokens` tokens that one expert is likely to get.
size_t LikelySlots(const ScratchExperts& experts, size_t tokens);
// The products of one expert, for the slots that it is likely to get.
std::vector<ScratchProduct> ProductsOf(const ScratchExperts& experts,
                                       const ScratchShape& shape);

}  // namespace ecphory
