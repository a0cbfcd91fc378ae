#include "model/config_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote.h"

namespace ecphory {

namespace {

using nlohmann::json;

// A value as an error message shows it: short and on one line. Lists and
// objects are only named, as their depth is the file's choice.
std::string Shown(const json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  constexpr size_t kMaxShown = 60;
  const std::string text =
      value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "...";
}

class JsonKeySource : public KeySource {
 public:
  explicit JsonKeySource(json root) : root_(std::move(root)) {
    const auto text = root_.find("text_config");
    if (text != root_.end() && text->is_object()) text_ = &*text;
  }

  bool Has(const std::string& key) const override {
    return Find(key) != nullptr;
  }

  std::string Spelling(const std::string& key) const override {
    const bool in_text =
        SearchesText(key) && (Lookup(*text_, key) != nullptr || !Has(key));
    return in_text ? "text_config." + key : key;
  }

  Result<uint64_t> Uint(const std::string& key) const override {
    return ToUint(*Find(key), Spelling(key));
  }

  Result<int64_t> Int(const std::string& key) const override {
    const json& value = *Find(key);
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() ||
         value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    if (fits) return value.get<int64_t>();
    return Wrong(value, Spelling(key), "an integer");
  }

  Result<double> Float(const std::string& key) const override {
    const json& value = *Find(key);
    if (value.is_number()) return value.get<double>();
    return Wrong(value, Spelling(key), "a number");
  }

  Result<bool> Bool(const std::string& key) const override {
    const json& value = *Find(key);
    if (value.is_boolean()) return value.get<bool>();
    return Wrong(value, Spelling(key), "true or false");
  }

  Result<std::string> String(const std::string& key) const override {
    const json& value = *Find(key);
    if (value.is_string()) return value.get<std::string>();
    return Wrong(value, Spelling(key), "a string");
  }

  Result<std::vector<uint64_t>> UintArray(
      const std::string& key) const override {
    const json& value = *Find(key);
    if (!value.is_array()) return Wrong(value, Spelling(key), "a list");
    std::vector<uint64_t> out;
    out.reserve(value.size());
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string element = Spelling(key) + "[" + std::to_string(i) + "]";
      ECPHORY_ASSIGN_OR_RETURN(const uint64_t item, ToUint(value[i], element));
      out.push_back(item);
    }
    return out;
  }

 private:
  // The member or, for a number, the element that `name` picks.
  static const json* Step(const json& from, const std::string& name) {
    if (from.is_object()) {
      const auto it = from.find(name);
      return it == from.end() ? nullptr : &*it;
    }
    const bool first = from.is_array() && name == "0" && !from.empty();
    return first ? &from[0] : nullptr;
  }

  // Dots step inwards: "rope_scaling.factor", "architectures.0".
  static const json* Lookup(const json& root, const std::string& key) {
    const json* at = &root;
    for (size_t begin = 0; at != nullptr;) {
      const size_t dot = key.find('.', begin);
      at = Step(*at, key.substr(begin, dot - begin));
      if (dot == std::string::npos) break;
      begin = dot + 1;
    }
    return at != nullptr && at->is_null() ? nullptr : at;
  }

  // Each part has a model_type of its own; the whole's is at the top.
  bool SearchesText(const std::string& key) const {
    return text_ != nullptr && key != "model_type";
  }

  const json* Find(const std::string& key) const {
    const json* found = SearchesText(key) ? Lookup(*text_, key) : nullptr;
    return found ? found : Lookup(root_, key);
  }

  static Status Wrong(const json& value, const std::string& key,
                      const char* expected) {
    return Corrupt("%s: found %s, expected %s", key.c_str(),
                   Shown(value).c_str(), expected);
  }

  static Result<uint64_t> ToUint(const json& value, const std::string& key) {
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    return Wrong(value, key, "an integer of 0 or more");
  }

  json root_;
  const json* text_ = nullptr;  // into root_
};

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

void ReadPadToken(FieldReader* f, EngramConfig* e) {
  const KeySource& keys = f->source();
  f->Required(
      keys.Has("engram_pad_token_id") ? "engram_pad_token_id" : "engram_pad_id",
      &e->pad_token_id);
  uint32_t other = e->pad_token_id;
  f->Optional("engram_pad_id", &other);
  if (other == e->pad_token_id) return;
  f->Keep(Corrupt("%s: found %u, expected %u as in engram_pad_token_id",
                  keys.Spelling("engram_pad_id").c_str(), other,
                  e->pad_token_id));
}

// Without layers the other keys may be there, but not as if tables existed.
void ReadEngramAbsence(FieldReader* f) {
  const KeySource& keys = f->source();
  std::vector<uint64_t> rows;
  uint64_t compressed = 0;
  f->Optional("engram_num_embeddings", &rows);
  f->Optional("engram_compressed_vocab_size", &compressed);
  if (rows.empty() && compressed == 0) return;
  if (!keys.Has("engram_layer_ids")) return f->Missing("engram_layer_ids");
  f->Keep(
      Corrupt("%s: empty, but engram_num_embeddings or "
              "engram_compressed_vocab_size describe tables",
              keys.Spelling("engram_layer_ids").c_str()));
}

void ReadEngram(FieldReader* f, EngramConfig* e) {
  f->Optional("engram_layer_ids", &e->layer_ids);
  if (!e->enabled()) return ReadEngramAbsence(f);
  f->Required("engram_num_embeddings", &e->rows);
  f->Required("engram_max_ngram_size", &e->max_ngram);
  f->Required("engram_n_heads", &e->heads);
  f->Required("engram_head_dim", &e->head_dim);
  f->Required("engram_vocab_size", &e->vocab_size);
  f->Required("engram_compressed_vocab_size", &e->compressed_vocab_size);
  ReadPadToken(f, e);
}

}  // namespace

Result<std::unique_ptr<KeySource>> ParseJsonKeys(const std::string& text,
                                                 const std::string& where) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& error) {
    return Corrupt("%s: not valid JSON at byte %zu", where.c_str(), error.byte);
  } catch (const json::exception&) {  // the only other: a number overflows
    return Corrupt("%s: a number is too large, expected finite values",
                   where.c_str());
  }
  if (!root.is_object()) {
    return Corrupt("%s: found %s, expected a JSON object", where.c_str(),
                   Shown(root).c_str());
  }
  std::unique_ptr<KeySource> source =
      std::make_unique<JsonKeySource>(std::move(root));
  return source;
}

void ReadSpecialTokens(FieldReader* f, ModelConfig* c) {
  for (const auto& [key, id] : {std::pair{"bos_token_id", &c->bos_token_id},
                                std::pair{"eos_token_id", &c->eos_token_id}}) {
    const std::string first = std::string(key) + ".0";
    f->Optional(f->source().Has(first) ? first : key, id);
  }
}

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
  ReadEngram(&fields, &config.engram);
  Status status = fields.status();
  if (status.ok()) status = config.Validate();
  if (!status.ok()) return status.WithContext(where);
  return config;
}

}  // namespace ecphory
