// Names of a layer's tensors: "layers.N.suffix", in GGUF "blk.N.suffix".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ecphory {

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
