// Questions a ModelConfig answers about its layers.
#include "ecphory/config.h"

#include <algorithm>

namespace ecphory {

namespace {

bool Contains(const std::vector<uint32_t>& ids, uint32_t layer) {
  return std::find(ids.begin(), ids.end(), layer) != ids.end();
}

// The last of the ascending `ids` at or before `layer`, else -1.
int LastAtOrBefore(const std::vector<uint32_t>& ids, uint32_t layer) {
  const auto after = std::upper_bound(ids.begin(), ids.end(), layer);
  return after == ids.begin() ? -1 : static_cast<int>(*std::prev(after));
}

}  // namespace

int ModelConfig::KvSourceOf(uint32_t layer) const {
  if (layer >= compress_ratios.size() || compress_ratios[layer] == 0) return -1;
  return LastAtOrBefore(kv_source_layer_ids, layer);
}

int ModelConfig::IndexSourceOf(uint32_t layer) const {
  if (layer >= compress_ratios.size() || compress_ratios[layer] == 0) return -1;
  return LastAtOrBefore(index_source_layer_ids, layer);
}

bool ModelConfig::IsKvSource(uint32_t layer) const {
  return Contains(kv_source_layer_ids, layer);
}

bool ModelConfig::IsIndexSource(uint32_t layer) const {
  return Contains(index_source_layer_ids, layer);
}

}  // namespace ecphory
