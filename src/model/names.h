// Tensor names. Inside the engine a tensor goes by its released name without
// ".weight" ("layers.3.attn.wq_a"); GGUF files spell it otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ecphory {

// "blk.3.attn_q_a.weight" of "layers.3.attn.wq_a". A layer's routed experts go
// as one: "layers.3.ffn.experts.w1". Empty when GGUF has no such tensor.
std::string GgufTensorName(const std::string& released_name);

// "layers.3." + suffix.
std::string LayerTensor(uint32_t layer, const std::string& suffix);

// The layer and suffix of "layers.3.suffix" or "blk.3.suffix"; nothing for
// other names.
struct LayerName {
  uint32_t layer = 0;
  std::string suffix;
};
std::optional<LayerName> SplitLayerName(const std::string& name);

}  // namespace ecphory
