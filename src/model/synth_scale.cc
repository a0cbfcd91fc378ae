#include "model/synth_scale.h"

#include <cmath>
#include <string_view>

namespace ecphory {

namespace {

constexpr float kPostBase = -3;
constexpr double kPost = 0.095;  // 2 sigmoid(kPostBase)
constexpr float kMixScale = 0.5f;
constexpr float kOwnPlace = 2;  // comb logits of a stream to itself
constexpr double kHeadGain = 2;
constexpr double kNormDeviation = 0.1;
constexpr double kMixBaseDeviation = 0.25;
// Small beside the scores' own spread (about 0.4), as balanced biases are.
constexpr double kRouterBiasDeviation = 0.02;

bool Has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

SynthValues VectorValues(const std::string& name, uint32_t streams) {
  if (Has(name, "_base")) return SynthMixBase(streams);
  if (Has(name, "_scale")) return SynthMixScale();
  if (Has(name, "attn_sink")) return SynthNumbers(1);
  if (Has(name, "gate.bias")) return SynthNumbers(kRouterBiasDeviation);
  return SynthNorm();
}

}  // namespace

SynthValues SynthMatrix(uint64_t cols, double gain) {
  return SynthNumbers(gain / std::sqrt(static_cast<double>(cols)));
}

SynthValues SynthNumbers(double deviation) {
  SynthValues values;
  values.deviation = deviation;
  return values;
}

SynthValues SynthNorm() {
  SynthValues values;
  values.deviation = kNormDeviation;
  values.mean = {1};
  return values;
}

SynthValues SynthMixBase(uint32_t streams) {
  SynthValues values;
  values.deviation = kMixBaseDeviation;
  values.mean.assign(streams, 0);
  values.mean.insert(values.mean.end(), streams, kPostBase);
  for (uint32_t from = 0; from < streams; ++from) {
    for (uint32_t to = 0; to < streams; ++to) {
      values.mean.push_back(from == to ? kOwnPlace : 0);
    }
  }
  return values;
}

SynthValues SynthMixScale() {
  SynthValues values;
  values.mean = {kMixScale};
  return values;
}

SynthValues SynthScale(const TensorSlot& slot, const ModelConfig& config) {
  const uint64_t cols = slot.shape.back();
  switch (slot.role) {
    case TensorRole::kVector: return VectorValues(slot.name, config.hc_mult);
    case TensorRole::kEmbedding: return SynthNumbers(1);
    default: break;
  }
  if (slot.name == "head") return SynthMatrix(cols, kHeadGain);
  if (Has(slot.name, "engram.wkv")) {
    return SynthMatrix(cols, kPost / SynthTableRms());
  }
  return SynthMatrix(cols);
}

}  // namespace ecphory
