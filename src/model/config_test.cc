// config.json in all its spellings, and every way to get it wrong.
#include "ecphory/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "model/test_models.h"

namespace ecphory {
namespace {

using testing::ExpectHas;

using nlohmann::json;

// Golden model A's config.json, composite.
json GoldenConfig(const std::string& model = "A") {
  return json::parse(
      testing::ReadFileOrDie(testing::GoldenDir(model) + "/config.json"));
}

Result<ModelConfig> Parse(const json& config) {
  return ParseConfigJson(config.dump(), "config.json");
}

// `change` applied to golden A, then parsed: the message, "" when accepted.
std::string ErrorAfter(
    const std::function<void(json& top, json& text)>& change) {
  json config = GoldenConfig();
  change(config, config["text_config"]);
  const Result<ModelConfig> parsed = Parse(config);
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(ConfigJson, GoldenAIsReadWhole) {
  const Result<ModelConfig> parsed = Parse(GoldenConfig());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const ModelConfig& c = *parsed;
  EXPECT_EQ(c.architecture, "deepseek41");
  EXPECT_EQ(c.vocab_size, 512u);
  EXPECT_EQ(c.hidden_size, 128u);
  EXPECT_EQ(c.n_layers, 6u);
  EXPECT_EQ(c.head_dim, 64u);
  EXPECT_EQ(c.rope_dim, 32u);
  EXPECT_EQ(c.compress_ratios, (std::vector<uint32_t>{0, 0, 2, 2, 1, 1}));
  EXPECT_EQ(c.candidate_source_layer_id, 4);
  EXPECT_FLOAT_EQ(c.rms_norm_eps, 1e-20f);
  EXPECT_TRUE(c.yarn.enabled);
  EXPECT_EQ(c.yarn.factor, 16);
  EXPECT_EQ(c.yarn.original_max_positions, 64);
  EXPECT_EQ(c.n_experts, 8u);
  EXPECT_EQ(c.swiglu_limit, 10);
  EXPECT_EQ(c.image_token_id, 509);
  EXPECT_EQ(c.bos_token_id, 0);
  EXPECT_EQ(c.eos_token_id, 1);
  EXPECT_EQ(c.engram.layer_ids, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(c.engram.rows, (std::vector<uint64_t>{3144, 3424}));
  EXPECT_EQ(c.engram.vocab_size, 500u);
  EXPECT_EQ(c.engram.columns(), 6u);
  EXPECT_EQ(c.engram.compressed_vocab_size, 394u);
  EXPECT_EQ(c.engram.pad_token_id, 2u);
}

TEST(ConfigJson, GoldenBHasNoEngram) {
  const Result<ModelConfig> parsed = Parse(GoldenConfig("B"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_FALSE(parsed->engram.enabled());
  EXPECT_EQ(parsed->hc_mult, 2u);
}

TEST(ConfigJson, GoldenCHasNoYarnAndNoCandidates) {
  const Result<ModelConfig> parsed = Parse(GoldenConfig("C"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_FALSE(parsed->yarn.enabled);
  EXPECT_EQ(parsed->candidate_source_layer_id, -1);
  EXPECT_FLOAT_EQ(parsed->gate_temp, 1.3f);
}

TEST(ConfigJson, FlatConfigIsTheSame) {
  json flat = GoldenConfig();
  const json text = flat["text_config"];
  flat.erase("text_config");
  flat.update(text);
  flat["model_type"] = "deepseek_v41_text";
  const Result<ModelConfig> parsed = Parse(flat);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->hidden_size, 128u);
  EXPECT_EQ(parsed->image_token_id, 509);
}

TEST(ConfigJson, MissingFlatKeysAreSpelledFlat) {
  const Result<ModelConfig> parsed =
      ParseConfigJson(R"({"model_type":"deepseek_v41"})", "config.json");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), StatusCode::kNotFound);
  ExpectHas(parsed.status().message(), "config.json: missing keys vocab_size");
  ExpectHas(parsed.status().message(), ", hc_eps");
}

// Every key the engine cannot do without: removed alone, it is named.
TEST(ConfigJson, EachMissingKeyIsNamed) {
  const char* keys[] = {"vocab_size",
                        "hidden_size",
                        "num_hidden_layers",
                        "num_attention_heads",
                        "num_key_value_heads",
                        "head_dim",
                        "q_lora_rank",
                        "qk_rope_head_dim",
                        "rope_theta",
                        "compress_rope_theta",
                        "max_position_embeddings",
                        "sliding_window",
                        "compress_ratios",
                        "kv_source_layer_ids",
                        "index_source_layer_ids",
                        "candidate_topk_blocks",
                        "candidate_block_size",
                        "index_n_heads",
                        "index_head_dim",
                        "index_topk",
                        "o_groups",
                        "o_lora_rank",
                        "moe_intermediate_size",
                        "n_routed_experts",
                        "n_shared_experts",
                        "num_experts_per_tok",
                        "scoring_func",
                        "norm_topk_prob",
                        "routed_scaling_factor",
                        "swiglu_limit",
                        "hc_mult",
                        "hc_sinkhorn_iters",
                        "hc_eps",
                        "rms_norm_eps",
                        "engram_layer_ids",
                        "engram_vocab_size",
                        "engram_num_embeddings",
                        "engram_max_ngram_size",
                        "engram_n_heads",
                        "engram_head_dim",
                        "engram_compressed_vocab_size"};
  for (const char* key : keys) {
    const std::string error =
        ErrorAfter([&](json&, json& text) { text.erase(key); });
    ExpectHas(error, std::string("missing key text_config.") + key);
  }
}

TEST(ConfigJson, AllMissingKeysAreInOneError) {
  const std::string error = ErrorAfter([](json&, json& text) {
    text.erase("hidden_size");
    text.erase("hc_mult");
    text["rope_scaling"].erase("factor");
  });
  ExpectHas(error,
            "missing keys text_config.hidden_size, text_config.hc_mult, "
            "text_config.rope_scaling.factor");
}

TEST(ConfigJson, NullCountsAsMissing) {
  ExpectHas(ErrorAfter([](json&, json& text) { text["hc_mult"] = nullptr; }),
            "missing key text_config.hc_mult");
}

TEST(ConfigJson, OptionalKeysHaveDefaults) {
  json config = GoldenConfig();
  json& text = config["text_config"];
  for (const char* key :
       {"gate_temp", "candidate_source_layer_id", "candidate_topk_blocks",
        "candidate_block_size", "rope_scaling", "bos_token_id", "hidden_act",
        "topk_method"}) {
    text.erase(key);
  }
  config.erase("image_token_id");
  config.erase("quantization_config");
  const Result<ModelConfig> parsed = Parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->gate_temp, 1);
  EXPECT_EQ(parsed->candidate_source_layer_id, -1);
  EXPECT_FALSE(parsed->yarn.enabled);
  EXPECT_EQ(parsed->bos_token_id, -1);
  EXPECT_EQ(parsed->image_token_id, -1);
}

TEST(ConfigJson, BothSpellingsOfThePadId) {
  EXPECT_EQ(ErrorAfter([](json&, json& t) { t.erase("engram_pad_id"); }), "");
  EXPECT_EQ(ErrorAfter([](json&, json& t) { t.erase("engram_pad_token_id"); }),
            "");
  ExpectHas(ErrorAfter([](json&, json& t) { t["engram_pad_id"] = 3; }),
            "engram_pad_id: found 3, expected 2");
  ExpectHas(ErrorAfter([](json&, json& t) {
              t.erase("engram_pad_id");
              t.erase("engram_pad_token_id");
            }),
            "missing key text_config.engram_pad_id");
}

TEST(ConfigJson, RatiosBeyondTheLastLayerAreLeftOut) {
  json config = GoldenConfig();
  for (int i = 0; i < 3; ++i)
    config["text_config"]["compress_ratios"].push_back(0);
  const Result<ModelConfig> parsed = Parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->compress_ratios.size(), 6u);
}

TEST(ConfigJson, EosMayBeAList) {
  json config = GoldenConfig();
  config["text_config"]["eos_token_id"] = {1, 7};
  const Result<ModelConfig> parsed = Parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->eos_token_id, 1);
}

TEST(ConfigJson, RopeScalingTypeUnderEitherName) {
  EXPECT_EQ(ErrorAfter([](json&, json& t) {
              t["rope_scaling"].erase("rope_type");
              t["rope_scaling"]["type"] = "yarn";
            }),
            "");
  ExpectHas(ErrorAfter([](json&, json& t) {
              t["rope_scaling"]["rope_type"] = "llama3";
            }),
            "rope_scaling.rope_type: found 'llama3', expected 'yarn'");
}

TEST(ConfigJson, OtherFamiliesAreRefusedByName) {
  ExpectHas(ErrorAfter([](json& top, json&) {
              top["architectures"] = {"LlamaForCausalLM"};
            }),
            "found 'LlamaForCausalLM', supported are DeepseekV41ForCausalLM");
  ExpectHas(ErrorAfter([](json& top, json&) {
              top["architectures"] = {"DeepseekV4ForCausalLM"};
            }),
            "(DeepSeek V4)");
  ExpectHas(ErrorAfter([](json& top, json&) {
              top.erase("architectures");
              top["model_type"] = "qwen3";
            }),
            "model_type: found 'qwen3'");
}

TEST(ConfigJson, TypesAndRangesAreChecked) {
  const struct {
    const char* key;
    json value;
    const char* expected;
  } rows[] = {
      {"hidden_size", 128.0, "hidden_size: found 128.0, expected an integer"},
      {"hidden_size", "128", "hidden_size: found \"128\", expected an integer"},
      {"hidden_size", -128, "hidden_size: found -128, expected an integer"},
      {"hidden_size", true, "hidden_size: found true, expected an integer"},
      {"hidden_size", 5000000000,
       "found 5000000000, expected an integer of 0.."},
      {"hidden_size", json::array({1}), "hidden_size: found a list"},
      {"vocab_size", 0, "vocab_size: found 0, expected 1.."},
      {"rms_norm_eps", "small", "rms_norm_eps: found \"small\""},
      {"rms_norm_eps", 1e300, "rms_norm_eps: found 1e+300"},
      {"rms_norm_eps", -1.0, "rms_norm_eps: found -1"},
      {"rope_theta", 0, "rope_theta: found 0"},
      {"norm_topk_prob", 1, "norm_topk_prob: found 1, expected true or false"},
      {"scoring_func", "tanh", "scoring_func: found 'tanh'"},
      {"hidden_act", "gelu", "hidden_act: found 'gelu', expected 'silu'"},
      {"topk_method", "greedy", "topk_method: found 'greedy'"},
      {"num_key_value_heads", 2, "num_key_value_heads: found 2, expected 1"},
      {"attention_bias", true, "attention_bias: found true"},
      {"expert_dtype", "fp8", "expert_dtype: found 'fp8'"},
      {"head_dim", 48, "head_dim: found 48, expected a multiple of 32"},
      {"qk_rope_head_dim", 33, "qk_rope_head_dim: found 33"},
      {"qk_rope_head_dim", 66, "qk_rope_head_dim: found 66, expected 1..64"},
      {"o_groups", 3, "num_attention_heads: found 4, expected a multiple of 3"},
      {"num_experts_per_tok", 9, "num_experts_per_tok: found 9, expected 1..8"},
      {"n_shared_experts", 0, "n_shared_experts: found 0"},
      {"index_head_dim", 40, "index_head_dim: found 40"},
      {"index_topk", 0, "index_topk: found 0"},
      {"hc_mult", 1, "hc_mult: found 1 streams, expected 2..16"},
      {"hc_mult", 17, "hc_mult: found 17 streams, expected 2..16"},
      {"hc_sinkhorn_iters", 0, "hc_sinkhorn_iters: found 0"},
      {"eos_token_id", 512, "eos_token_id: found 512"},
      {"eos_token_id", 1ull << 40, "eos_token_id: found 1099511627776"},
  };
  for (const auto& row : rows) {
    ExpectHas(ErrorAfter([&](json&, json& t) { t[row.key] = row.value; }),
              row.expected);
  }
}

TEST(ConfigJson, SharingOfCompressedEntriesIsChecked) {
  const struct {
    const char* key;
    json value;
    const char* expected;
  } rows[] = {
      {"compress_ratios", {0, 0, 2}, "compress_ratios: found 3 entries"},
      {"compress_ratios",
       {0, 2, 2, 2, 1, 1},
       "compress_ratios[1]: found 2, but"},
      {"compress_ratios",
       {0, 0, 2, 1, 1, 1},
       "compress_ratios[3]: found 1, expected 2"},
      {"compress_ratios", {0, 0, 0, 2, 1, 1}, "kv_source_layer_ids: layer 2"},
      {"compress_ratios",
       {0, 0, 2, 2, 1, 0},
       "index_source_layer_ids: layer 5"},
      {"compress_ratios",
       {0, 0, 2, 2, 999, 1},
       "compress_ratios[4]: found 999"},
      {"kv_source_layer_ids", {2, 6}, "kv_source_layer_ids: found layer 6"},
      {"kv_source_layer_ids", {4, 2}, "found 2 after 4, expected ascending"},
      {"index_source_layer_ids", {2, 5}, "KV source layer 4 is missing"},
      {"candidate_source_layer_id", 3, "candidate_source_layer_id: found 3"},
      {"candidate_source_layer_id", -2, "candidate_source_layer_id: found -2"},
      {"candidate_source_layer_id", 2, "layer 2 has ratio 2, index source 4"},
      {"candidate_block_size", 0, "candidate_block_size: found 0"},
  };
  for (const auto& row : rows) {
    ExpectHas(ErrorAfter([&](json&, json& t) { t[row.key] = row.value; }),
              row.expected);
  }
}

TEST(ConfigJson, EngramIsChecked) {
  const struct {
    const char* key;
    json value;
    const char* expected;
  } rows[] = {
      {"engram_layer_ids", json::array(), "engram_layer_ids: empty, but"},
      {"engram_layer_ids", {1, 6}, "engram_layer_ids: found layer 6"},
      {"engram_layer_ids", {3, 1}, "found 1 after 3"},
      {"engram_num_embeddings",
       {3144},
       "engram_num_embeddings: found 1 entries"},
      {"engram_num_embeddings", {3144, 0}, "engram_num_embeddings: found 0"},
      {"engram_max_ngram_size", 1, "engram_max_ngram_size: found 1"},
      {"engram_max_ngram_size", 9, "engram_max_ngram_size: found 9"},
      {"engram_n_heads", 0, "engram_n_heads: found 0"},
      {"engram_head_dim", 48, "engram_head_dim: found 48"},
      {"engram_compressed_vocab_size", 0,
       "engram_compressed_vocab_size: found 0"},
      {"engram_compressed_vocab_size", 513, "found 513, expected 1..512"},
  };
  for (const auto& row : rows) {
    ExpectHas(ErrorAfter([&](json&, json& t) { t[row.key] = row.value; }),
              row.expected);
  }
  ExpectHas(ErrorAfter([](json&, json& t) {
              t["engram_pad_id"] = 512;
              t["engram_pad_token_id"] = 512;
            }),
            "engram_pad_token_id: found 512, expected 0..511");
}

TEST(ConfigJson, BlockSizesOtherThan32AreRefused) {
  ExpectHas(ErrorAfter([](json& top, json&) {
              top["quantization_config"]["weight_block_size"] = {128, 128};
            }),
            "weight_block_size: expected [32, 32]");
}

TEST(ConfigJson, TextThatIsNoObject) {
  for (const char* text : {"", "[]", "3", "{", "{\"a\":NaN}", "\"x\"",
                           "{\"hidden_size\":1e999}"}) {
    const Result<ModelConfig> parsed = ParseConfigJson(text, "config.json");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt) << text;
    ExpectHas(parsed.status().message(), "config.json: ");
  }
}

TEST(ConfigJson, DeepNestingIsNoStackOverflow) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(ParseConfigJson(deep, "config.json").ok());
  const std::string closed = "{\"model_type\":\"deepseek_v41\",\"hc_mult\":" +
                             std::string(50000, '[') + std::string(50000, ']') +
                             "}";
  EXPECT_FALSE(ParseConfigJson(closed, "config.json").ok());
}

TEST(ModelConfig, SourcesOfLayers) {
  const ModelConfig c = testing::ReleasedConfig();
  ASSERT_TRUE(c.Validate().ok()) << c.Validate().ToString();
  EXPECT_EQ(c.KvSourceOf(0), -1);
  EXPECT_EQ(c.KvSourceOf(2), 2);
  EXPECT_EQ(c.KvSourceOf(7), 2);
  EXPECT_EQ(c.KvSourceOf(39), 20);
  EXPECT_EQ(c.IndexSourceOf(1), -1);
  EXPECT_EQ(c.IndexSourceOf(23), 20);
  EXPECT_EQ(c.IndexSourceOf(24), 24);
  EXPECT_EQ(c.engram.IndexOfLayer(14), 1);
  EXPECT_EQ(c.engram.IndexOfLayer(2), -1);
  EXPECT_TRUE(c.IsKvSource(8));
  EXPECT_FALSE(c.IsKvSource(24));
  EXPECT_TRUE(c.IsIndexSource(24));
}

TEST(ModelConfig, StoredEngramNumbersMustFitTheLayers) {
  ModelConfig c = testing::ReleasedConfig();
  c.engram.primes = {2, 3};
  ExpectHas(c.Validate().message(), "engram.primes: found 2, expected 48");
  c = testing::ReleasedConfig();
  c.engram.multipliers = {1};
  ExpectHas(c.Validate().message(), "engram.multipliers: found 1, expected 8");
  c = testing::ReleasedConfig();
  c.engram.pad_compressed_id = 99092;
  ExpectHas(c.Validate().message(), "engram.pad_id: found 99092");
}

}  // namespace
}  // namespace ecphory
