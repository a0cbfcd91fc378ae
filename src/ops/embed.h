// h[t][s] = table[token[t]] for every stream s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/residual_streams.h"
#include "tensor/matrix.h"

namespace ecphory {

struct EmbedArgs {
  Matrix table;                     // [vocab, D]
  const int32_t* tokens = nullptr;  // [n_tokens], each in [0, vocab)
  size_t n_tokens = 0;
  size_t streams = 0;  // H
  Streams h;           // [n_tokens, H, D]
};

}  // namespace ecphory
