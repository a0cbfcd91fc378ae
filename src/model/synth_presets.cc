#include "model/synth_presets.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote.h"
#include "engram/layout.h"

namespace ecphory {

namespace {

using Json = nlohmann::json;

struct Preset {
  const char* name;
  const char* model;
  const char* config;
  // A cut keeps these first, in this order, so that the smallest ones have most
  // mechanisms; each finds the source it reads among those before it.
  std::vector<uint32_t> first_kept;
  const char* sizes = "{}";  // instead of those in `config`
};

// In front of every config.json of the family.
constexpr char kTop[] = R"({
  "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41",
  "dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
  "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
    "activation_scheme": "dynamic", "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0", "expert_dtype": "fp4"}})";

constexpr char kCommon[] = R"({
  "model_type": "deepseek_v41_text", "attention_bias": false,
  "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02,
  "norm_topk_prob": true, "num_key_value_heads": 1, "n_shared_experts": 1,
  "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-20, "rope_theta": 10000.0,
  "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus",
  "swiglu_limit": 10.0, "tie_word_embeddings": false, "topk_method": "noaux_tc",
  "gate_temp": 1.0, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06,
  "engram_max_ngram_size": 4, "engram_pad_token_id": 2,
  "candidate_block_size": 8})";

constexpr char kV41Flash[] = R"({
  "vocab_size": 129280, "hidden_size": 5120, "moe_intermediate_size": 2304,
  "num_hidden_layers": 40, "num_attention_heads": 64, "head_dim": 512,
  "qk_rope_head_dim": 64, "q_lora_rank": 1280, "o_lora_rank": 1024,
  "o_groups": 8, "n_routed_experts": 384, "num_experts_per_tok": 6,
  "rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 16,
    "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536},
  "compress_rope_theta": 160000.0, "max_position_embeddings": 1048576,
  "sliding_window": 128,
  "compress_ratios": [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
  "kv_source_layer_ids": [2, 8, 14, 20],
  "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
  "index_n_heads": 32, "index_head_dim": 128, "index_topk": 512,
  "candidate_source_layer_id": 20, "candidate_topk_blocks": 2048,
  "engram_layer_ids": [1, 14], "engram_vocab_size": 16000000,
  "engram_n_heads": 8, "engram_head_dim": 256,
  "engram_compressed_vocab_size": 99092, "image_token_id": 129264})";

// What v41-flash becomes in 0.4 GB: all layers and lists, a tenth of the width.
constexpr char kNarrow[] = R"({
  "vocab_size": 8192, "hidden_size": 512, "moe_intermediate_size": 256,
  "num_attention_heads": 8, "head_dim": 128, "q_lora_rank": 256,
  "o_lora_rank": 128, "o_groups": 4, "n_routed_experts": 32,
  "index_n_heads": 8, "index_head_dim": 64, "engram_vocab_size": 10000,
  "engram_head_dim": 64, "engram_compressed_vocab_size": 6950,
  "image_token_id": 8176})";

constexpr char kMini[] = R"({
  "vocab_size": 8192, "hidden_size": 288, "moe_intermediate_size": 96,
  "num_hidden_layers": 8, "num_attention_heads": 8, "head_dim": 64,
  "qk_rope_head_dim": 32, "q_lora_rank": 128, "o_lora_rank": 128,
  "o_groups": 2, "n_routed_experts": 16, "num_experts_per_tok": 4,
  "rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 4,
    "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 512},
  "compress_rope_theta": 40000.0, "max_position_embeddings": 2048,
  "sliding_window": 64, "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1],
  "kv_source_layer_ids": [2, 5], "index_source_layer_ids": [2, 5, 7],
  "index_n_heads": 4, "index_head_dim": 32, "index_topk": 64,
  "candidate_source_layer_id": 5, "candidate_topk_blocks": 32,
  "engram_layer_ids": [1, 4], "engram_vocab_size": 14500,
  "engram_n_heads": 4, "engram_head_dim": 64,
  "engram_compressed_vocab_size": 6950})";

const Preset* FindPreset(const std::string& name) {
  static const Preset kPresets[] = {
      // 14 and 20 alone: Engram, a KV source of each ratio, index sources and
      // the candidate source. 1: a window beside Engram. 24: an index source
      // inside the candidates. 15, 21: layers that reuse. Then what is left of
      // sources.
      {"v41-flash",
       "DeepSeek V4.1 Flash",
       kV41Flash,
       {14, 20, 1, 24, 15, 21, 0, 2, 8, 28, 32, 36}},
      {"v41-narrow",
       "DeepSeek V4.1 Flash, narrow",
       kV41Flash,
       {14, 20, 1, 24, 15, 21, 0, 2, 8, 28, 32, 36},
       kNarrow},
      {"mini", "Ecphory mini", kMini, {2, 5, 1, 7, 4}},
  };
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return &preset;
  }
  return nullptr;
}

using Ids = std::vector<uint32_t>;

void CutLayerLists(const Ids& kept, Json* text) {
  Json& config = *text;
  const Ids ratios = config["compress_ratios"].get<Ids>();
  Ids kept_ratios;
  for (const uint32_t layer : kept) kept_ratios.push_back(ratios[layer]);
  config["compress_ratios"] = kept_ratios;
  config["num_hidden_layers"] = kept.size();
  for (const char* key :
       {"kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids"}) {
    config[key] = MapLayers(config[key].get<Ids>(), kept);
  }
  const Ids candidate =
      MapLayers({config["candidate_source_layer_id"].get<uint32_t>()}, kept);
  if (!candidate.empty()) {
    config["candidate_source_layer_id"] = candidate[0];
    return;
  }
  for (const char* part : {"source_layer_id", "topk_blocks", "block_size"}) {
    config.erase(std::string("candidate_") + part);
  }
}

// Rows of the tables follow from primes; a cut without an Engram layer has none
// of its keys.
Status PlanEngram(const SynthCut& cut, Json* text) {
  Json& config = *text;
  const Ids layers = config["engram_layer_ids"].get<Ids>();
  if (layers.empty()) {
    for (auto it = config.begin(); it != config.end();) {
      it = it.key().rfind("engram_", 0) == 0 ? config.erase(it) : std::next(it);
    }
    return {};
  }
  const uint32_t max_ngram = config["engram_max_ngram_size"];
  const uint32_t heads = config["engram_n_heads"];
  const uint64_t columns = uint64_t{max_ngram - 1} * heads;
  uint64_t vocab = config["engram_vocab_size"];
  if (cut.engram_rows != 0) vocab = cut.engram_rows / columns;
  const bool fewer_layers = cut.layers != 0;
  if (cut.engram_rows == 0 && fewer_layers) {
    vocab = std::min(vocab, kCutRows / columns);
  }
  if (vocab < 2) {
    return InvalidArgument("--engram-rows %llu: expected at least %llu",
                           static_cast<unsigned long long>(cut.engram_rows),
                           static_cast<unsigned long long>(2 * columns));
  }
  ECPHORY_ASSIGN_OR_RETURN(
      const engram::Layout layout,
      engram::DeriveLayout(
          {.layer_ids = layers,
           .max_ngram = max_ngram,
           .heads = heads,
           .vocab_size = vocab,
           .compressed_vocab_size = config["engram_compressed_vocab_size"]}));
  config["engram_vocab_size"] = vocab;
  config["engram_num_embeddings"] = Json::array();
  for (const engram::LayerLayout& layer : layout.layers) {
    config["engram_num_embeddings"].push_back(layer.rows);
  }
  return {};
}

Status CutExperts(const SynthCut& cut, Json* config) {
  if (cut.experts == 0) return {};
  const uint32_t used = (*config)["num_experts_per_tok"];
  const uint32_t all = (*config)["n_routed_experts"];
  if (cut.experts < used || cut.experts > all) {
    return InvalidArgument(
        "--experts %u: expected %u (those of a token) to %u (the preset's)",
        cut.experts, used, all);
  }
  (*config)["n_routed_experts"] = cut.experts;
  return {};
}

}  // namespace

std::vector<uint32_t> KeptLayers(uint32_t layers, uint32_t count,
                                 const std::vector<uint32_t>& first_kept) {
  std::vector<uint32_t> order = first_kept;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const bool there =
        std::find(order.begin(), order.end(), layer) != order.end();
    if (!there) order.push_back(layer);
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<uint32_t> MapLayers(const std::vector<uint32_t>& ids,
                                const std::vector<uint32_t>& kept) {
  std::vector<uint32_t> mapped;
  for (const uint32_t id : ids) {
    const auto at = std::find(kept.begin(), kept.end(), id);
    if (at == kept.end()) continue;
    mapped.push_back(static_cast<uint32_t>(at - kept.begin()));
  }
  return mapped;
}

Status CheckSynthLayers(const std::string& preset, uint32_t layers,
                        uint32_t most) {
  if (layers <= most) return {};
  return InvalidArgument("--layers %u: %s has %u layers", layers,
                         preset.c_str(), most);
}

Result<SynthShape> MakeSynthShape(const std::string& name,
                                  const SynthCut& cut) {
  const Preset* const preset = FindPreset(name);
  if (preset == nullptr) {
    return InvalidArgument(
        "preset %s: expected v41-flash, v41-narrow, v4-flash or "
        "mini",
        Quoted(name).c_str());
  }
  Json text = Json::parse(kCommon);
  text.update(Json::parse(preset->config));
  text.update(Json::parse(preset->sizes));
  const uint32_t all = text["num_hidden_layers"];
  ECPHORY_RETURN_IF_ERROR(CheckSynthLayers(name, cut.layers, all));
  SynthShape shape;
  shape.name = std::string(preset->model) + ", random weights";
  shape.layers =
      KeptLayers(all, cut.layers == 0 ? all : cut.layers, preset->first_kept);
  CutLayerLists(shape.layers, &text);
  ECPHORY_RETURN_IF_ERROR(CutExperts(cut, &text));
  ECPHORY_RETURN_IF_ERROR(PlanEngram(cut, &text));
  Json config = Json::parse(kTop);
  if (text.contains("image_token_id")) {
    config["image_token_id"] = text["image_token_id"];
    text.erase("image_token_id");
  }
  config["text_config"] = std::move(text);
  shape.config = config.dump();
  return shape;
}

}  // namespace ecphory
