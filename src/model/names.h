// Tensor names. Inside the engine a tensor goes by its released name without
// ".weight" ("layers.3.attn.wq_a"); GGUF files spell it otherwise.
#pragma once

#include <string>

#include "format/layer_name.h"

namespace ecphory {

// "blk.3.attn_q_a.weight" of "layers.3.attn.wq_a". A layer's routed experts go
// as one: "layers.3.ffn.experts.w1". Empty when GGUF has no such tensor.
std::string GgufTensorName(const std::string& released_name);

}  // namespace ecphory
