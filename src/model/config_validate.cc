// ModelConfig::Validate: what the engine relies on, checked once. Messages name
// keys as config.json spells them.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "engram/config.h"
#include "format/field_reader.h"
#include "ops/hyper_connection.h"

namespace ecphory {

namespace {

// Far above every published model, low enough that products of three sizes
// stay inside 64 bits.
constexpr uint64_t kMaxDim = 1u << 20;
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxVocab = 1u << 30;
constexpr uint64_t kMaxExperts = 65536;
constexpr uint64_t kMaxRatio = 128;
constexpr uint64_t kMaxSinkhornIters = 1000;

using Ull = unsigned long long;

Status PositiveFloat(const char* key, float value) {
  if (std::isfinite(value) && value > 0) return {};
  return Corrupt("%s: found %g, expected a finite number above 0", key,
                 static_cast<double>(value));
}

Status NonNegativeFloat(const char* key, float value) {
  if (std::isfinite(value) && value >= 0) return {};
  return Corrupt("%s: found %g, expected a finite number of 0 or more", key,
                 static_cast<double>(value));
}

Status TokenId(const char* key, int32_t id, uint32_t vocab_size) {
  if (id >= -1 && id < static_cast<int64_t>(vocab_size)) return {};
  return Corrupt("%s: found %d, expected an id below vocab_size (%u)", key, id,
                 vocab_size);
}

Status ValidateSizes(const ModelConfig& c) {
  const struct {
    const char* key;
    uint64_t value;
    uint64_t high;
  } sizes[] = {
      {"vocab_size", c.vocab_size, kMaxVocab},
      {"hidden_size", c.hidden_size, kMaxDim},
      {"num_hidden_layers", c.n_layers, kMaxLayers},
      {"num_attention_heads", c.n_heads, 65536},
      {"head_dim", c.head_dim, 65536},
      {"qk_rope_head_dim", c.rope_dim, c.head_dim},
      {"q_lora_rank", c.q_lora_rank, kMaxDim},
      {"o_groups", c.o_groups, c.n_heads},
      {"o_lora_rank", c.o_lora_rank, kMaxDim},
      {"sliding_window", c.sliding_window, kMaxDim},
      {"max_position_embeddings", c.max_positions, UINT32_MAX},
      {"moe_intermediate_size", c.expert_dim, kMaxDim},
      {"n_routed_experts", c.n_experts, kMaxExperts},
      {"num_experts_per_tok", c.n_experts_per_token, c.n_experts},
      {"n_shared_experts", c.n_shared_experts, 64},
  };
  for (const auto& size : sizes) {
    ECPHORY_RETURN_IF_ERROR(CheckRange(size.key, size.value, 1, size.high));
  }
  ECPHORY_RETURN_IF_ERROR(CheckMultiple("head_dim", c.head_dim, 32,
                                        "window rows are rounded in blocks"));
  ECPHORY_RETURN_IF_ERROR(CheckMultiple("qk_rope_head_dim", c.rope_dim, 2,
                                        "channels turn in pairs"));
  ECPHORY_RETURN_IF_ERROR(CheckMultiple("num_attention_heads", c.n_heads,
                                        c.o_groups,
                                        "o_groups divide the heads"));
  return {};
}

Status ValidateNumbers(const ModelConfig& c) {
  ECPHORY_RETURN_IF_ERROR(NonNegativeFloat("rms_norm_eps", c.rms_norm_eps));
  ECPHORY_RETURN_IF_ERROR(PositiveFloat("rope_theta", c.rope_theta));
  ECPHORY_RETURN_IF_ERROR(
      PositiveFloat("compress_rope_theta", c.compress_rope_theta));
  ECPHORY_RETURN_IF_ERROR(PositiveFloat("gate_temp", c.gate_temp));
  ECPHORY_RETURN_IF_ERROR(
      PositiveFloat("routed_scaling_factor", c.routed_scaling_factor));
  ECPHORY_RETURN_IF_ERROR(NonNegativeFloat("swiglu_limit", c.swiglu_limit));
  if (!c.yarn.enabled) return {};
  ECPHORY_RETURN_IF_ERROR(PositiveFloat("rope_scaling.factor", c.yarn.factor));
  ECPHORY_RETURN_IF_ERROR(
      PositiveFloat("rope_scaling.beta_fast", c.yarn.beta_fast));
  ECPHORY_RETURN_IF_ERROR(
      PositiveFloat("rope_scaling.beta_slow", c.yarn.beta_slow));
  return PositiveFloat("rope_scaling.original_max_position_embeddings",
                       c.yarn.original_max_positions);
}

// Every layer with a ratio reads the latents of the last KV source and the
// selection of the last index source; both must exist and speak of the same
// groups.
Status ValidateCompressedLayer(const ModelConfig& c, uint32_t layer) {
  const uint32_t ratio = c.compress_ratios[layer];
  if (ratio > kMaxRatio) {
    return Unsupported("compress_ratios[%u]: found %u, expected 0..%llu", layer,
                       ratio, static_cast<Ull>(kMaxRatio));
  }
  if (ratio == 0) {
    if (c.IsKvSource(layer)) {
      return Corrupt(
          "kv_source_layer_ids: layer %u has compress_ratios 0, "
          "expected 1 or more for a source",
          layer);
    }
    if (!c.IsIndexSource(layer)) return {};
    return Corrupt(
        "index_source_layer_ids: layer %u has compress_ratios 0, "
        "expected 1 or more for a source",
        layer);
  }
  const int source = c.KvSourceOf(layer);
  if (source < 0) {
    return Corrupt(
        "compress_ratios[%u]: found %u, but kv_source_layer_ids "
        "has no source at or before layer %u",
        layer, ratio, layer);
  }
  if (c.compress_ratios[source] != ratio) {
    return Corrupt(
        "compress_ratios[%u]: found %u, expected %u, that of its "
        "KV source layer %d",
        layer, ratio, c.compress_ratios[source], source);
  }
  if (c.IndexSourceOf(layer) < source) {
    return Corrupt(
        "index_source_layer_ids: KV source layer %d is missing, "
        "expected every KV source to select its own entries",
        source);
  }
  return {};
}

Status ValidateIndexer(const ModelConfig& c) {
  if (c.index_source_layer_ids.empty()) return {};
  ECPHORY_RETURN_IF_ERROR(
      CheckRange("index_n_heads", c.index_n_heads, 1, 65536));
  ECPHORY_RETURN_IF_ERROR(
      CheckRange("index_head_dim", c.index_head_dim, c.rope_dim, 65536));
  ECPHORY_RETURN_IF_ERROR(CheckRange("index_topk", c.index_topk, 1, kMaxDim));
  return CheckMultiple("index_head_dim", c.index_head_dim, 32,
                       "index keys are rounded in blocks");
}

Status ValidateCandidates(const ModelConfig& c) {
  const int32_t layer = c.candidate_source_layer_id;
  if (layer == -1) return {};
  if (layer < 0 || !c.IsIndexSource(static_cast<uint32_t>(layer))) {
    return Corrupt(
        "candidate_source_layer_id: found %d, expected -1 or one "
        "of index_source_layer_ids",
        layer);
  }
  ECPHORY_RETURN_IF_ERROR(CheckRange("candidate_topk_blocks",
                                     c.candidate_topk_blocks, 1, UINT32_MAX));
  ECPHORY_RETURN_IF_ERROR(
      CheckRange("candidate_block_size", c.candidate_block_size, 1, kMaxDim));
  for (const uint32_t later : c.index_source_layer_ids) {
    if (later > static_cast<uint32_t>(layer) &&
        c.compress_ratios[later] != c.compress_ratios[layer]) {
      return Unsupported(
          "candidate_source_layer_id: layer %d has ratio %u, index source %u "
          "after it has %u, expected one ratio from the candidates on",
          layer, c.compress_ratios[layer], later, c.compress_ratios[later]);
    }
  }
  return {};
}

Status ValidateCompression(const ModelConfig& c) {
  if (c.compress_ratios.size() != c.n_layers) {
    return Corrupt("compress_ratios: found %zu entries, expected %u",
                   c.compress_ratios.size(), c.n_layers);
  }
  ECPHORY_RETURN_IF_ERROR(
      CheckLayerIds("kv_source_layer_ids", c.kv_source_layer_ids, c.n_layers));
  ECPHORY_RETURN_IF_ERROR(CheckLayerIds("index_source_layer_ids",
                                        c.index_source_layer_ids, c.n_layers));
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
    ECPHORY_RETURN_IF_ERROR(ValidateCompressedLayer(c, layer));
  }
  ECPHORY_RETURN_IF_ERROR(ValidateIndexer(c));
  return ValidateCandidates(c);
}

Status ValidateHyperConnections(const ModelConfig& c) {
  if (c.hc_mult < kMinStreams || c.hc_mult > kMaxStreams) {
    return Unsupported("hc_mult: found %u streams, expected %zu..%zu",
                       c.hc_mult, kMinStreams, kMaxStreams);
  }
  ECPHORY_RETURN_IF_ERROR(CheckRange("hc_sinkhorn_iters", c.hc_sinkhorn_iters,
                                     1, kMaxSinkhornIters));
  return NonNegativeFloat("hc_eps", c.hc_eps);
}

}  // namespace

Status ModelConfig::Validate() const {
  ECPHORY_RETURN_IF_ERROR(ValidateSizes(*this));
  ECPHORY_RETURN_IF_ERROR(ValidateNumbers(*this));
  ECPHORY_RETURN_IF_ERROR(ValidateCompression(*this));
  ECPHORY_RETURN_IF_ERROR(ValidateHyperConnections(*this));
  ECPHORY_RETURN_IF_ERROR(TokenId("bos_token_id", bos_token_id, vocab_size));
  ECPHORY_RETURN_IF_ERROR(TokenId("eos_token_id", eos_token_id, vocab_size));
  ECPHORY_RETURN_IF_ERROR(
      TokenId("image_token_id", image_token_id, vocab_size));
  return engram::CheckConfig(engram, vocab_size, n_layers);
}

}  // namespace ecphory
