// config.json -> ModelConfig.
#include <utility>

#include "base/quote.h"
#include "engram/config.h"
#include "format/json_keys.h"
#include "model/config_reader.h"

namespace ecphory {

namespace {

// Refuses other families by the name they carry.
Status CheckArchitecture(const KeySource& keys) {
  const std::string key =
      keys.Has("architectures.0") ? "architectures.0" : "model_type";
  ECPHORY_ASSIGN_OR_RETURN(const std::string name, keys.String(key));
  for (const char* supported :
       {"DeepseekV41ForCausalLM", "deepseek_v41", "deepseek_v41_text"}) {
    if (name == supported) return {};
  }
  const bool v4 = name == "DeepseekV4ForCausalLM" || name == "deepseek_v4";
  return Unsupported(
      "%s: found %s%s, supported are DeepseekV41ForCausalLM / deepseek_v41",
      key.c_str(), Quoted(name).c_str(), v4 ? " (DeepSeek V4)" : "");
}

// Tensor dtypes come from the tensors' headers; this only refuses files whose
// scales mean something else.
void CheckQuantization(FieldReader* f) {
  f->ExpectIfPresent("expert_dtype", "fp4");
  if (!f->source().Has("quantization_config")) return;
  f->ExpectIfPresent("quantization_config.quant_method", "fp8");
  f->ExpectIfPresent("quantization_config.fmt", "e4m3");
  f->ExpectIfPresent("quantization_config.scale_fmt", "ue8m0");
  f->ExpectIfPresent("quantization_config.expert_dtype", "fp4");
  const std::string key = "quantization_config.weight_block_size";
  std::vector<uint32_t> block;
  f->Required(key, &block);
  if (!block.empty() && block != std::vector<uint32_t>{32, 32}) {
    f->Keep(Unsupported("%s: expected [32, 32]",
                        f->source().Spelling(key).c_str()));
  }
}

void RefuseIfTrue(FieldReader* f, const std::string& key) {
  bool value = false;
  f->Optional(key, &value);
  if (value) {
    f->Keep(Unsupported("%s: found true, expected false",
                        f->source().Spelling(key).c_str()));
  }
}

void ReadRopeScaling(FieldReader* f, YarnConfig* yarn) {
  if (!f->source().Has("rope_scaling")) return;
  const std::string key = f->source().Has("rope_scaling.rope_type")
                              ? "rope_scaling.rope_type"
                              : "rope_scaling.type";
  if (!f->source().Has(key)) return f->Missing("rope_scaling.rope_type");
  f->ExpectIfPresent(key, "yarn");
  yarn->enabled = true;
  f->Required("rope_scaling.factor", &yarn->factor);
  f->Required("rope_scaling.beta_fast", &yarn->beta_fast);
  f->Required("rope_scaling.beta_slow", &yarn->beta_slow);
  f->Required("rope_scaling.original_max_position_embeddings",
              &yarn->original_max_positions);
}

}  // namespace

Result<ModelConfig> ParseConfigJson(const std::string& text,
                                    const std::string& where) {
  ECPHORY_ASSIGN_OR_RETURN(const std::unique_ptr<KeySource> keys,
                           ParseJsonKeys(text, where));
  FieldReader fields(*keys);
  if (!keys->Has("architectures.0") && !keys->Has("model_type")) {
    fields.Missing("model_type");
  } else if (Status known = CheckArchitecture(*keys); !known.ok()) {
    return known.WithContext(where);
  }
  ModelConfig config;
  config.architecture = "deepseek41";
  ReadBackbone(&fields, &config);
  ReadSpecialTokens(&fields, &config);
  CheckQuantization(&fields);
  RefuseIfTrue(&fields, "attention_bias");
  RefuseIfTrue(&fields, "tie_word_embeddings");
  ReadRopeScaling(&fields, &config.yarn);
  engram::ReadJsonConfig(&fields, &config.engram);
  Status status = fields.status();
  if (status.ok()) status = config.Validate();
  if (!status.ok()) return status.WithContext(where);
  return config;
}

}  // namespace ecphory
