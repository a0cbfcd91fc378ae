#include "model/synth_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/test_models.h"

namespace ecphory {
namespace {

using Json = nlohmann::json;
using testing::ExpectHas;

SynthTypes Types(const std::string& name) {
  Result<SynthTypes> types = ParseSynthTypes(name);
  EXPECT_TRUE(types.ok()) << types.status().ToString();
  return *types;
}

ModelConfig Config(const std::string& preset, const SynthCut& cut = {}) {
  const Result<SynthShape> shape = MakeSynthShape(preset, cut);
  EXPECT_TRUE(shape.ok()) << shape.status().ToString();
  Result<ModelConfig> config = ParseConfigJson(shape->config, preset);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return std::move(config).value();
}

struct Expected {
  std::string name;
  std::vector<uint64_t> dims;  // fastest first, as the table of formats has it
  DType dtype;
};

// Every tensor of the release in GGUF, written down from the published table
// rather than from the code.
class ReleasedTable {
 public:
  ReleasedTable(DType gate_up, DType down) : gate_up_(gate_up), down_(down) {
    Add("token_embd.weight", {5120, 129280}, DType::kF16);
    Add("output_norm.weight", {5120}, DType::kF32);
    Add("output.weight", {5120, 129280}, DType::kQ8_0);
    for (int n = 0; n < 40; ++n) AddLayer(n);
    Add("blk.1.engram_embd.weight", {264, 384006168}, DType::kI8);
    Add("blk.14.engram_embd.weight", {264, 384016682}, DType::kI8);
  }
  const std::vector<Expected>& tensors() const { return tensors_; }

 private:
  void Add(const std::string& name, std::vector<uint64_t> dims, DType dtype) {
    tensors_.push_back({name, std::move(dims), dtype});
  }
  void AddLayer(int n) {
    const std::string b = "blk." + std::to_string(n) + ".";
    const auto is = [n](std::initializer_list<int> ids) {
      return std::find(ids.begin(), ids.end(), n) != ids.end();
    };
    for (const std::string site : {"attn", "ffn"}) {
      Add(b + "hc_" + site + "_fn.weight", {20480, 24}, DType::kF16);
      Add(b + "hc_" + site + "_base.weight", {24}, DType::kF32);
      Add(b + "hc_" + site + "_scale.weight", {3}, DType::kF32);
      Add(b + site + "_norm.weight", {5120}, DType::kF32);
    }
    Add(b + "attn_sinks.weight", {64}, DType::kF32);
    Add(b + "attn_q_a.weight", {5120, 1280}, DType::kQ8_0);
    Add(b + "attn_q_b.weight", {1280, 32768}, DType::kQ8_0);
    Add(b + "attn_q_a_norm.weight", {1280}, DType::kF32);
    Add(b + "attn_kv.weight", {5120, 512}, DType::kQ8_0);
    Add(b + "attn_kv_a_norm.weight", {512}, DType::kF32);
    Add(b + "attn_output_a.weight", {4096, 8192}, DType::kQ8_0);
    Add(b + "attn_output_b.weight", {8192, 5120}, DType::kQ8_0);
    if (is({2, 8, 14, 20})) {
      Add(b + "attn_compressor_kv.weight", {5120, 512}, DType::kF16);
      Add(b + "attn_compressor_norm.weight", {512}, DType::kF32);
      Add(b + "indexer.attn_k.weight", {512, 128}, DType::kF16);
      Add(b + "indexer.k_norm.weight", {128}, DType::kF32);
    }
    if (is({2, 8, 14})) {
      Add(b + "attn_compressor_gate.weight", {5120, 512}, DType::kF16);
    }
    if (is({2, 8, 14, 20, 24, 28, 32, 36})) {
      Add(b + "indexer.attn_q_b.weight", {1280, 4096}, DType::kF16);
      Add(b + "indexer.proj.weight", {5120, 32}, DType::kF16);
    }
    AddExperts(b);
    if (!is({1, 14})) return;
    Add(b + "engram_q_norm.weight", {5120, 4}, DType::kF32);
    Add(b + "engram_k_norm.weight", {5120, 4}, DType::kF32);
    Add(b + "engram_kv.weight", {6144, 25600}, DType::kF16);
  }
  void AddExperts(const std::string& b) {
    Add(b + "ffn_gate_inp.weight", {5120, 384}, DType::kF32);
    Add(b + "exp_probs_b.bias", {384}, DType::kF32);
    Add(b + "exp_probs_b_vl.bias", {384}, DType::kF32);
    for (const std::string part : {"gate", "up", "down"}) {
      const bool down = part == "down";
      const uint64_t in = down ? 2304 : 5120, out = down ? 5120 : 2304;
      Add(b + "ffn_" + part + "_shexp.weight", {in, out}, DType::kQ8_0);
      Add(b + "ffn_" + part + "_exps.weight", {in, out, 384},
          down ? down_ : gate_up_);
    }
  }

  const DType gate_up_, down_;
  std::vector<Expected> tensors_;
};

void ExpectTable(const std::string& types, DType gate_up, DType down) {
  const auto planned = PlanSynthGguf(Config("v41-flash"), Types(types));
  const ReleasedTable table(gate_up, down);
  ASSERT_EQ(planned.size(), table.tensors().size());
  for (size_t i = 0; i < planned.size(); ++i) {
    const Expected& expected = table.tensors()[i];
    ASSERT_EQ(planned[i].name, expected.name) << i;
    const std::vector<uint64_t> dims(planned[i].shape.rbegin(),
                                     planned[i].shape.rend());
    EXPECT_EQ(dims, expected.dims) << expected.name;
    EXPECT_EQ(planned[i].dtype, expected.dtype) << expected.name;
  }
}

TEST(SynthPlan, GgufHasTheReleasedTensorsInOrder) {
  ExpectTable("q4_k", DType::kQ4_K, DType::kQ4_K);
  ExpectTable("q2", DType::kIQ2_XXS, DType::kQ2_K);
  ExpectTable("q8_0", DType::kQ8_0, DType::kQ8_0);
  ExpectTable("released", DType::kMXFP4, DType::kMXFP4);
}

SynthModelFacts Facts(const SynthModelOptions& options) {
  const Result<SynthModelFacts> facts = PlanSynthModel(options);
  EXPECT_TRUE(facts.ok()) << facts.status().ToString();
  return *facts;
}

// Sizes of the published files: of Q4 the tensor data alone are known, of Q2
// the whole file, 356 pages of header included.
TEST(SynthPlan, GgufTakesThePublishedBytes) {
  const SynthModelFacts q4 = Facts({.dtypes = "q4_k", .output = "a.gguf"});
  EXPECT_EQ(q4.tensors, 1046u);
  EXPECT_EQ(q4.tensor_bytes, 518'590'234'624u);
  const SynthModelFacts q2 = Facts({.dtypes = "q2", .output = "a.gguf"});
  EXPECT_EQ(q2.tensor_bytes + 356 * 16384, 365'713'686'528u);
}

// What the release has beside the text model: three draft stages and the
// vision tower, whose shapes are published as well.
struct Total {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  void Add(uint64_t count, uint64_t values, uint64_t value_bytes) {
    tensors += count;
    bytes += count * values * value_bytes;
  }
  void AddFp8(uint64_t rows, uint64_t cols) {
    Add(1, rows * cols, 1);
    Add(1, rows / 32 * (cols / 32), 1);
  }
};

Total DraftStages() {
  ModelConfig stages = testing::ReleasedConfig();
  stages.n_layers = 3;
  stages.n_experts = 128;
  stages.compress_ratios.assign(3, 0);
  stages.kv_source_layer_ids.clear();
  stages.index_source_layer_ids.clear();
  stages.engram = {};
  Total total;
  for (const SynthTensor& tensor : PlanSynthReleased(stages)) {
    if (tensor.name.rfind("layers.", 0) == 0) {
      total.tensors += 1;
      total.bytes += tensor.bytes();
    }
  }
  total.AddFp8(5120, 15360);      // main_proj
  total.Add(2, 5120, 2);          // main_norm, norm
  total.Add(2, 129280 * 256, 2);  // Markov embedding and head
  total.Add(1, 5376, 2);          // confidence
  return total;
}

Total Vision() {
  Total total;
  total.Add(1, 1024 * 588, 2);
  total.Add(1, 1024, 2);
  total.Add(2 * 32 + 1, 1024, 2);  // norms
  total.Add(32, 3072 * 1024, 2);
  total.Add(32, 3072, 2);
  total.Add(32, 1024 * 1024, 2);
  total.Add(32, 1024, 2);
  total.Add(32, 5632 * 1024, 2);
  total.Add(32, 1024 * 2816, 2);
  total.Add(1, 5120 * 9216, 2);
  total.Add(1, 5120 * 5120, 2);
  total.Add(2 + 3, 5120, 2);  // biases, image tokens
  return total;
}

TEST(SynthPlan, DirectoryTakesThePublishedBytes) {
  const SynthModelFacts text = Facts({.output = "directory"});
  const Total draft = DraftStages(), vision = Vision();
  EXPECT_EQ(draft.tensors, 2401u);
  EXPECT_EQ(text.tensors + draft.tensors + vision.tensors, 96'085u);
  EXPECT_EQ(text.tensor_bytes + draft.bytes + vision.bytes, 510'286'023'000u);
}

TEST(SynthPlan, WholePresetIsTheRelease) {
  const ModelConfig made = Config("v41-flash");
  const ModelConfig released = testing::ReleasedConfig();
  EXPECT_EQ(made.compress_ratios, released.compress_ratios);
  EXPECT_EQ(made.engram.rows, released.engram.rows);
  EXPECT_EQ(made.max_positions, released.max_positions);
  EXPECT_EQ(made.index_source_layer_ids, released.index_source_layer_ids);
  EXPECT_EQ(made.image_token_id, released.image_token_id);
}

// ParseConfigJson validates: no cut may lose a source that a layer reads.
TEST(SynthPlan, EveryCutIsAModel) {
  for (uint32_t layers = 1; layers <= 40; ++layers) {
    const ModelConfig config =
        Config("v41-flash", {.layers = layers, .engram_rows = 10'000});
    EXPECT_EQ(config.n_layers, layers);
  }
  for (uint32_t layers = 1; layers <= 40; ++layers) {
    EXPECT_EQ(Config("v41-narrow", {.layers = layers}).n_layers, layers);
  }
  for (uint32_t layers = 1; layers <= 8; ++layers) {
    EXPECT_EQ(Config("mini", {.layers = layers}).n_layers, layers);
  }
}

TEST(SynthPlan, TwoLayersHaveEverySource) {
  const ModelConfig c = Config("v41-flash", {.layers = 2, .experts = 32});
  EXPECT_EQ(c.compress_ratios, (std::vector<uint32_t>{2, 1}));
  EXPECT_EQ(c.kv_source_layer_ids, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(c.index_source_layer_ids, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(c.candidate_source_layer_id, 1);
  EXPECT_EQ(c.engram.layer_ids, std::vector<uint32_t>{0});
  EXPECT_EQ(c.n_experts, 32u);
  EXPECT_LE(c.engram.rows[0], kCutRows + 10'000);
}

TEST(SynthPlan, FourLayersAddAWindowAndAnIndexSourceInsideCandidates) {
  const ModelConfig c = Config("v41-flash", {.layers = 4});
  EXPECT_EQ(c.compress_ratios, (std::vector<uint32_t>{0, 2, 1, 1}));
  EXPECT_EQ(c.engram.layer_ids, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(c.index_source_layer_ids, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(c.candidate_source_layer_id, 2);
}

TEST(SynthPlan, ACutWithoutItsSourcesHasNoneOfTheirKeys) {
  const ModelConfig c = Config("mini", {.layers = 1});
  EXPECT_FALSE(c.engram.enabled());
  EXPECT_EQ(c.candidate_source_layer_id, -1);
}

std::string ErrorOf(const SynthModelOptions& options) {
  const Result<SynthModelFacts> facts = PlanSynthModel(options);
  return facts.ok() ? "planned" : facts.status().message();
}

TEST(SynthPlan, WhatAPresetHasNotIsRefused) {
  ExpectHas(ErrorOf({.preset = "v5"}), "v41-narrow, v4-flash or mini");
  ExpectHas(ErrorOf({.layers = 41}), "--layers 41: v41-flash has 40");
  ExpectHas(ErrorOf({.experts = 5}), "--experts 5: expected 6");
  ExpectHas(ErrorOf({.experts = 385}), "to 384");
  ExpectHas(ErrorOf({.engram_rows = 10}), "--engram-rows 10");
  ExpectHas(ErrorOf({.dtypes = "q3"}), "released, q8_0, q4_k or q2");
  ExpectHas(ErrorOf({.dtypes = "q2", .output = "dir"}), ".gguf");
  ExpectHas(ErrorOf({.preset = "mini", .dtypes = "q4_k", .output = "a.gguf"}),
            "rows of 288 values, expected a multiple of 256");
  ExpectHas(ErrorOf({.preset = "v4-flash", .output = "dir"}), "GGUF only");
  ExpectHas(
      ErrorOf({.preset = "v4-flash", .engram_rows = 1000, .output = "a.gguf"}),
      "no Engram");
}

// Names of one layer of each kind, and how many tensors there are in all.
TEST(SynthPlan, V4HasItsOwnTensors) {
  const Result<SynthV4> shape = MakeSynthV4({.layers = 3, .experts = 8});
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->layers, (std::vector<uint32_t>{0, 2, 3}));
  std::map<std::string, std::vector<uint64_t>> tensors;
  for (const SynthTensor& tensor : PlanSynthV4(*shape, Types("q2"))) {
    tensors[tensor.name] = tensor.shape;
  }
  const auto expect = [&](const std::string& name,
                          const std::vector<uint64_t>& shape_of) {
    EXPECT_EQ(tensors[name], shape_of) << name;
  };
  expect("output_hc_fn.weight", {4, 16384});
  expect("blk.0.ffn_gate_tid2eid.weight", {129280, 6});
  expect("blk.1.attn_compressor_ape.weight", {4, 1024});
  expect("blk.1.indexer.attn_q_b.weight", {8192, 1024});
  expect("blk.1.indexer_compressor_kv.weight", {256, 4096});
  expect("blk.2.attn_compressor_gate.weight", {512, 4096});
  expect("blk.2.exp_probs_b.bias", {8});
  expect("blk.2.ffn_down_exps.weight", {8, 4096, 2048});
  EXPECT_EQ(tensors.count("blk.2.indexer.proj.weight"), 0u);
  EXPECT_EQ(tensors.count("blk.1.exp_probs_b.bias"), 0u);
}

}  // namespace
}  // namespace ecphory
