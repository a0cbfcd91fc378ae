// Choosing compressed entries: scores, candidate blocks, top-k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/row_codec.h"

namespace ecphory {

// score[t][g] =
//     sum_head relu(q_head . k_g) * key_scale * w[t][head] * head_scale
// Entry g is visible to position p iff g < (p + 1) / ratio; others get -inf, as
// do those outside the candidate blocks when `mask` is given. What a visible
// NaN in a query, a key or a weight touches becomes NaN.
struct IndexScoresArgs {
  // [tokens, heads, dim], roped and rounded: of kFp4Block32 keys a query is
  // values of that format (round_rows), so that it can be taken for codes.
  const float* q = nullptr;
  const float* weights = nullptr;  // [tokens, heads]
  size_t tokens = 0;
  size_t heads = 0;
  size_t dim = 0;
  uint64_t first_position = 0;
  size_t ratio = 0;  // >= 1
  RowFormat key_format = RowFormat::kF32;
  const uint8_t* key_rows = nullptr;  // [groups, ...]
  size_t groups = 0;                  // columns of `scores`
  float key_scale = 0;                // index_head_dim^-0.5
  float head_scale = 0;               // index_n_heads^-0.5
  // As candidate_blocks makes it: [tokens, ceil(groups / block_size)], or null.
  const uint8_t* mask = nullptr;
  size_t block_size = 0;    // of `mask`
  float* scores = nullptr;  // [tokens, groups]
};

// Max-pools visible (finite) scores in blocks and keeps the best top_blocks of
// the blocks that hold a visible entry. The block of the newest visible entry
// is always kept and counts as one of them; ties keep the lower block.
// mask[t][b] = 1 for a candidate, else 0.
struct CandidateBlocksArgs {
  const float* scores = nullptr;  // [tokens, groups], -inf where invisible
  size_t tokens = 0;
  size_t groups = 0;
  size_t block_size = 0;
  size_t top_blocks = 0;    // >= 1
  uint8_t* mask = nullptr;  // [tokens, ceil(groups / block_size)]
};

// The `topk` best finite scores (all when fewer), inside the candidate blocks
// when `mask` is given; ties keep the lower entry.
struct SelectTopkArgs {
  const float* scores = nullptr;  // [tokens, groups]
  const uint8_t* mask = nullptr;  // [tokens, ceil(groups / block_size)] or null
  size_t tokens = 0;
  size_t groups = 0;
  size_t block_size = 0;  // of `mask`
  size_t topk = 0;
  int32_t* selected = nullptr;  // [tokens, topk] ascending, padded with -1
};

}  // namespace ecphory
