// Attention of all heads over one shared KV vector per position (K = V):
// the raw window plus the selected compressed entries, with a sink.
//   out = sum exp(s - m) * v / (sum exp(s - m) + exp(sink - m)), s = scale *
//   q.k
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/row_codec.h"

namespace ecphory {

struct AttentionArgs {
  const float* q = nullptr;  // [tokens, heads, dim], roped
  size_t tokens = 0;
  size_t heads = 0;
  size_t dim = 0;
  uint64_t first_position = 0;  // of token 0 of this chunk
  // Raw rows: position p lies in ring row p % window_capacity. The token at p
  // attends max(window_begin, p - window + 1) .. p, all present (capacity >=
  // window + tokens - 1).
  RowFormat window_format = RowFormat::kF32;
  RowFormat latent_format = RowFormat::kF32;
  bool round_bf16 = false;  // out
  float scale = 0;
  const uint8_t* window_rows = nullptr;
  size_t window_capacity = 0;
  size_t window = 0;          // W
  uint64_t window_begin = 0;  // <= first_position; older rows are not there
  // Compressed rows; `selected` is null when the layer has none.
  const uint8_t* latent_rows = nullptr;
  const int32_t* selected = nullptr;  // [tokens, topk] ascending, then -1
  size_t topk = 0;
  const float* sink = nullptr;  // [heads]
  float* out = nullptr;         // [tokens, heads, dim]
};

}  // namespace ecphory
