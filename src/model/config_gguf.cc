// GGUF metadata of architecture `deepseek41` -> ModelConfig.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "engram/config.h"
#include "format/gguf_keys.h"
#include "format/json_keys.h"
#include "model/config_reader.h"
#include "model/gguf_source.h"

namespace ecphory {

namespace {

const std::string kPrefix = "deepseek41.";

// ---- other architectures and dialects ----

struct KeyPair {
  const char* ours;       // after "deepseek41."
  const char* llama_cpp;  // after "deepseek41.", "" when it has none
};

// What this engine needs and the llama.cpp dialect spells otherwise or lacks.
constexpr KeyPair kDialectKeys[] = {
    {"hidden_size", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"max_position_embeddings", "context_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"qk_rope_head_dim", "rope.dimension_count"},
    {"q_lora_rank", "attention.q_lora_rank"},
    {"o_groups", "attention.output_group_count"},
    {"o_lora_rank", "attention.output_lora_rank"},
    {"sliding_window", "attention.sliding_window"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_theta", "rope.freq_base"},
    {"compress_rope_theta", "attention.compress_rope_freq_base"},
    {"compress_ratios", "attention.compress_ratios"},
    {"kv_source_layer_ids", ""},
    {"index_source_layer_ids", ""},
    {"index_n_heads", "attention.indexer.head_count"},
    {"index_head_dim", "attention.indexer.key_length"},
    {"index_topk", "attention.indexer.top_k"},
    {"candidate_source_layer_id", "attention.indexer.candidate_source_layer"},
    {"candidate_topk_blocks", "attention.indexer.candidate_top_k"},
    {"candidate_block_size", "attention.indexer.candidate_block_size"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"n_routed_experts", "expert_count"},
    {"n_shared_experts", "expert_shared_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"scoring_func", "expert_gating_func"},
    {"norm_topk_prob", "expert_weights_norm"},
    {"routed_scaling_factor", "expert_weights_scale"},
    {"swiglu_limit", ""},
    {"hc_mult", "hyper_connection.count"},
    {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"},
    {"hc_eps", "hyper_connection.epsilon"},
    {"engram.encoding", ""},
    {"engram.rows", ""},
    {"engram.compressed_vocab_size", ""},
    {"engram.layer_ids", "engram.layer_ids"},
    {"engram.pad_id", "engram.pad_id"},
    {"engram.token_map", "engram.token_map"},
    {"engram.primes", "engram.primes"},
    {"engram.multipliers", "engram.multipliers"},
};

bool IsLlamaCppDialect(const GgufFile& file) {
  return file.Has("deepseek41.embedding_length") &&
         !file.Has("deepseek41.hidden_size");
}

// The parts with no counterpart in the file, under our names.
std::vector<std::string> MissingFromDialect(const GgufFile& file) {
  std::vector<std::string> missing;
  for (const KeyPair& pair : kDialectKeys) {
    const std::string theirs = kPrefix + pair.llama_cpp;
    const bool there = *pair.llama_cpp != '\0' && file.Has(theirs);
    if (!there && !file.Has(kPrefix + pair.ours)) missing.push_back(pair.ours);
  }
  return missing;
}

Status RefuseLlamaCppDialect(const GgufFile& file) {
  return Unsupported(
      "%s: deepseek41 in the llama.cpp key dialect is not supported; it has "
      "nothing for %s, and its Engram tensors (blk.N.engram_embd, engram_q, "
      "engram_k, engram_wkv) are stored otherwise; convert the released "
      "directory with 'ecphory convert'",
      file.path().c_str(), JoinNames(MissingFromDialect(file)).c_str());
}

// A sidecar, as 'ecphory engram pack' writes it.
bool HoldsTablesAlone(const GgufFile& file) {
  return file.Has("deepseek41.engram.primes") &&
         !file.Has("deepseek41.hidden_size") &&
         !file.Has("deepseek41.num_hidden_layers");
}

Status RefuseTablesAlone(const GgufFile& file) {
  return Unsupported(
      "%s: Engram tables without a model, expected a whole model; 'ecphory "
      "engram' and its 'trace --no-gates' take such a file",
      file.path().c_str());
}

Status CheckArchitecture(const GgufFile& file) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string name,
                           file.GetString("general.architecture"));
  if (name == "deepseek41") {
    if (IsLlamaCppDialect(file)) return RefuseLlamaCppDialect(file);
    return HoldsTablesAlone(file) ? RefuseTablesAlone(file) : Status();
  }
  const char* known = name == "deepseek4" ? " (DeepSeek V4)" : "";
  return Unsupported(
      "%s: general.architecture: found %s%s, supported is 'deepseek41'",
      file.path().c_str(), Quoted(name).c_str(), known);
}

// ---- parts of the configuration ----

void ReadRopeScaling(FieldReader* f, YarnConfig* yarn) {
  const struct {
    const char* key;
    float* value;
  } parts[] = {
      {"rope_scaling.factor", &yarn->factor},
      {"rope_scaling.beta_fast", &yarn->beta_fast},
      {"rope_scaling.beta_slow", &yarn->beta_slow},
      {"rope_scaling.original_max_position_embeddings",
       &yarn->original_max_positions},
  };
  for (const auto& part : parts) {
    yarn->enabled = yarn->enabled || f->source().Has(part.key);
  }
  if (!yarn->enabled) return;
  for (const auto& part : parts) f->Required(part.key, part.value);
}

void ReadTokenIds(const GgufFile& file, FieldReader* f, ModelConfig* c) {
  const struct {
    const char* key;
    int32_t* id;
  } ids[] = {{"tokenizer.ggml.bos_token_id", &c->bos_token_id},
             {"tokenizer.ggml.eos_token_id", &c->eos_token_id}};
  for (const auto& [key, id] : ids) {
    if (!file.Has(key)) continue;
    const Result<uint64_t> value = file.GetUint(key);
    f->Keep(value.status());
    if (!value.ok()) continue;
    if (*value >= c->vocab_size) {
      f->Keep(OutOfRange("%s: found %llu, expected an id below %u", key,
                         static_cast<unsigned long long>(*value),
                         c->vocab_size));
      continue;
    }
    *id = static_cast<int32_t>(*value);
  }
}

// What the keys above have no place for, from the config.json that converters
// store whole.
Status ReadEmbeddedConfig(const GgufFile& file, const KeySource& stored,
                          ModelConfig* c) {
  const std::string key = kPrefix + "config";
  if (!file.Has(key)) return {};
  ECPHORY_ASSIGN_OR_RETURN(const std::string text, file.GetString(key));
  ECPHORY_ASSIGN_OR_RETURN(const std::unique_ptr<KeySource> keys,
                           ParseJsonKeys(text, key));
  FieldReader f(*keys);
  if (!stored.Has("gate_temp")) f.Optional("gate_temp", &c->gate_temp);
  if (!stored.Has("image_token_id")) {
    f.Optional("image_token_id", &c->image_token_id);
  }
  ModelConfig special;
  ReadSpecialTokens(&f, &special);
  if (c->bos_token_id < 0) c->bos_token_id = special.bos_token_id;
  if (c->eos_token_id < 0) c->eos_token_id = special.eos_token_id;
  engram::ReadEmbeddedConfig(&f, &c->engram);
  return f.status().ok() ? Status() : f.status().WithContext(key);
}

// GgufFile's own errors name the file already.
Status NamingFile(const Status& status, const std::string& path) {
  const bool named = status.message().rfind(path, 0) == 0;
  return named ? status : status.WithContext(path);
}

}  // namespace

Result<ModelConfig> ParseConfigGguf(const GgufFile& file) {
  ECPHORY_RETURN_IF_ERROR(CheckArchitecture(file));
  const GgufKeySource keys(file, kPrefix);
  FieldReader fields(keys);
  ModelConfig config;
  config.architecture = "deepseek41";
  if (file.Has("general.name")) {
    ECPHORY_ASSIGN_OR_RETURN(config.name, file.GetString("general.name"));
  }
  ReadBackbone(&fields, &config);
  ReadRopeScaling(&fields, &config.yarn);
  engram::ReadGgufConfig(&fields, &config.engram);
  ReadTokenIds(file, &fields, &config);
  Status status = fields.status();
  if (status.ok()) status = ReadEmbeddedConfig(file, keys, &config);
  if (status.ok()) status = config.Validate();
  if (!status.ok()) return NamingFile(status, file.path());
  return config;
}

}  // namespace ecphory
