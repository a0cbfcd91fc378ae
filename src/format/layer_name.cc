#include "format/layer_name.h"

#include <charconv>
#include <system_error>

namespace ecphory {

std::string LayerTensor(uint32_t layer, const std::string& suffix) {
  return "layers." + std::to_string(layer) + "." + suffix;
}

std::optional<LayerName> SplitLayerName(const std::string& name) {
  size_t begin = 0;
  if (name.rfind("layers.", 0) == 0) begin = 7;
  if (name.rfind("blk.", 0) == 0) begin = 4;
  if (begin == 0) return std::nullopt;
  LayerName out;
  const char* end = name.data() + name.size();
  const auto [dot, error] =
      std::from_chars(name.data() + begin, end, out.layer);
  if (error != std::errc() || dot == end || *dot != '.') return std::nullopt;
  out.suffix.assign(dot + 1, end);
  return out;
}

}  // namespace ecphory
