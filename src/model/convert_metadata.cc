#include "model/convert_metadata.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engram/config.h"
#include "format/json_keys.h"
#include "io/file.h"
#include "model/engram_source.h"

namespace ecphory {

namespace {

const std::string kPrefix = "deepseek41.";

// config.json as other writers of this architecture store it: compact, keys
// sorted.
Result<std::string> CompactConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, kMaxConfigBytes));
  try {
    return nlohmann::json::parse(text).dump();
  } catch (const nlohmann::json::exception& error) {
    return Corrupt("%s: %s", path.c_str(), error.what());
  }
}

class Metadata {
 public:
  explicit Metadata(GgufWriter* writer) : w_(writer) {}

  void Uint(const std::string& key, uint32_t value) {
    w_->AddUint32(kPrefix + key, value);
  }
  void Float(const std::string& key, float value) {
    w_->AddFloat32(kPrefix + key, value);
  }
  // Whole numbers as u32, which is what other readers expect of these keys.
  void UintOrFloat(const std::string& key, float value) {
    const bool whole =
        value >= 0 && value < 4294967296.0f && std::floor(value) == value;
    if (whole) return Uint(key, static_cast<uint32_t>(value));
    Float(key, value);
  }
  void String(const std::string& key, const std::string& value) {
    w_->AddString(kPrefix + key, value);
  }
  void UintArray(const std::string& key, const std::vector<uint32_t>& values) {
    w_->AddUint32Array(kPrefix + key, values);
  }
  void Uint64Array(const std::string& key,
                   const std::vector<uint64_t>& values) {
    w_->AddUint64Array(kPrefix + key, values);
  }
  // u32 when every value fits, else u64.
  void WideArray(const std::string& key, const std::vector<uint64_t>& values) {
    std::vector<uint32_t> narrow;
    for (const uint64_t value : values) {
      if (value > UINT32_MAX) return Uint64Array(key, values);
      narrow.push_back(static_cast<uint32_t>(value));
    }
    UintArray(key, narrow);
  }

 private:
  GgufWriter* w_;
};

// The last part of a path, with or without a slash behind it.
std::string FolderName(const std::string& path) {
  const std::filesystem::path absolute = std::filesystem::absolute(path + "/");
  return absolute.lexically_normal().parent_path().filename().string();
}

const char* ScoreName(RouterScoreKind kind) {
  switch (kind) {
    case RouterScoreKind::kSqrtSoftplus: return "sqrtsoftplus";
    case RouterScoreKind::kSigmoid: return "sigmoid";
    case RouterScoreKind::kSoftmax: return "softmax";
  }
  return "";
}

void AddSizes(const ModelConfig& c, Metadata* m) {
  m->Uint("vocab_size", c.vocab_size);
  m->Uint("hidden_size", c.hidden_size);
  m->Uint("moe_intermediate_size", c.expert_dim);
  m->Uint("num_hidden_layers", c.n_layers);
  m->Uint("num_attention_heads", c.n_heads);
  m->Uint("num_key_value_heads", 1);
  m->Uint("head_dim", c.head_dim);
  m->Uint("qk_rope_head_dim", c.rope_dim);
  m->Uint("q_lora_rank", c.q_lora_rank);
  m->Uint("o_lora_rank", c.o_lora_rank);
  m->Uint("o_groups", c.o_groups);
  m->Uint("n_routed_experts", c.n_experts);
  m->Uint("n_shared_experts", c.n_shared_experts);
  m->Uint("num_experts_per_tok", c.n_experts_per_token);
  m->Uint("max_position_embeddings", c.max_positions);
  m->Uint("sliding_window", c.sliding_window);
  m->Uint("index_n_heads", c.index_n_heads);
  m->Uint("index_head_dim", c.index_head_dim);
  m->Uint("index_topk", c.index_topk);
  if (c.candidate_source_layer_id >= 0) {
    m->Uint("candidate_source_layer_id",
            static_cast<uint32_t>(c.candidate_source_layer_id));
    m->Uint("candidate_topk_blocks", c.candidate_topk_blocks);
    m->Uint("candidate_block_size", c.candidate_block_size);
  }
  m->Uint("hc_mult", c.hc_mult);
  m->Uint("hc_sinkhorn_iters", c.hc_sinkhorn_iters);
}

void AddNumbers(const ModelConfig& c, Metadata* m) {
  m->UintOrFloat("rope_theta", c.rope_theta);
  m->UintOrFloat("compress_rope_theta", c.compress_rope_theta);
  m->Float("rms_norm_eps", c.rms_norm_eps);
  m->Float("hc_eps", c.hc_eps);
  m->Float("swiglu_limit", c.swiglu_limit);
  m->Float("routed_scaling_factor", c.routed_scaling_factor);
  m->Float("gate_temp", c.gate_temp);
  m->UintArray("compress_ratios", c.compress_ratios);
  m->UintArray("kv_source_layer_ids", c.kv_source_layer_ids);
  m->UintArray("index_source_layer_ids", c.index_source_layer_ids);
  if (c.image_token_id >= 0) {
    m->Uint("image_token_id", static_cast<uint32_t>(c.image_token_id));
  }
  if (!c.yarn.enabled) return;
  m->Float("rope_scaling.factor", c.yarn.factor);
  m->Float("rope_scaling.beta_fast", c.yarn.beta_fast);
  m->Float("rope_scaling.beta_slow", c.yarn.beta_slow);
  m->Float("rope_scaling.original_max_position_embeddings",
           c.yarn.original_max_positions);
}

Status AddEngram(const ModelSource& source, Metadata* m) {
  const EngramConfig& e = source.config.engram;
  if (!e.enabled()) return {};
  ECPHORY_ASSIGN_OR_RETURN(const engram::Hasher hasher, MakeHasher(source));
  std::vector<uint64_t> primes, multipliers;
  for (const engram::LayerLayout& layer : hasher.layout().layers) {
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    multipliers.insert(multipliers.end(), layer.multipliers.begin(),
                       layer.multipliers.end());
  }
  m->String("engram.encoding", engram::RowEncodingName(e.head_dim));
  m->UintArray("engram.layer_ids", e.layer_ids);
  m->WideArray("engram.rows", e.rows);
  m->Uint("engram.compressed_vocab_size", e.compressed_vocab_size);
  m->Uint("engram.pad_id", static_cast<uint32_t>(hasher.pad_id()));
  m->UintArray("engram.token_map",
               {source.token_map.begin(), source.token_map.end()});
  m->WideArray("engram.primes", primes);
  m->Uint64Array("engram.multipliers", multipliers);
  return {};
}

void AddTokenId(const std::string& key, int32_t from_tokenizer,
                int32_t from_config, GgufWriter* w) {
  const int32_t id = from_tokenizer >= 0 ? from_tokenizer : from_config;
  if (id >= 0) w->AddUint32(key, static_cast<uint32_t>(id));
}

void AddTokenIds(const ModelSource& source, GgufWriter* w) {
  const Tokenizer* tokenizer = source.tokenizer ? &*source.tokenizer : nullptr;
  AddTokenId("tokenizer.ggml.bos_token_id",
             tokenizer ? tokenizer->bos_id() : -1, source.config.bos_token_id,
             w);
  AddTokenId("tokenizer.ggml.eos_token_id",
             tokenizer ? tokenizer->eos_id() : -1, source.config.eos_token_id,
             w);
}

}  // namespace

void AddTokenizerKeys(const Tokenizer& tokenizer, GgufWriter* w) {
  const TokenizerData& data = tokenizer.data();
  std::vector<int32_t> types(data.tokens.size(), 1);
  std::vector<std::string> tokens = data.tokens;
  for (const TokenizerData::AddedToken& added : data.added) {
    const size_t id = static_cast<size_t>(added.id);
    tokens[id] = added.content;
    types[id] = added.special ? 3 : 1;
  }
  w->AddString("tokenizer.ggml.model", "gpt2");
  w->AddString("tokenizer.ggml.pre", "joyai-llm");
  w->AddStringArray("tokenizer.ggml.tokens", tokens);
  w->AddInt32Array("tokenizer.ggml.token_type", types);
  w->AddStringArray("tokenizer.ggml.merges", data.merges);
  w->AddBool("tokenizer.ggml.add_bos_token", data.add_bos);
  w->AddBool("tokenizer.ggml.add_eos_token", false);
}

Status AddMetadata(const ModelSource& source, const std::string& quantization,
                   GgufWriter* writer) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string config,
                           CompactConfig(source.path));
  return AddMetadata(source, FolderName(source.path), config, quantization,
                     writer);
}

Status AddMetadata(const ModelSource& source, const std::string& name,
                   const std::string& config, const std::string& quantization,
                   GgufWriter* writer) {
  Metadata m(writer);
  writer->AddString("general.architecture", "deepseek41");
  writer->AddString("general.name", name);
  m.String("config", config);
  ECPHORY_RETURN_IF_ERROR(AddEngram(source, &m));
  if (source.tokenizer) AddTokenizerKeys(*source.tokenizer, writer);
  AddTokenIds(source, writer);
  AddSizes(source.config, &m);
  AddNumbers(source.config, &m);
  m.String("scoring_func", ScoreName(source.config.router_score));
  m.String("hidden_act", "silu");
  m.String("topk_method", "noaux_tc");
  writer->AddBool(kPrefix + "norm_topk_prob", source.config.norm_topk_prob);
  m.String("quantization", quantization);
  return {};
}

}  // namespace ecphory
