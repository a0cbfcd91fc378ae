// Directory -> GGUF -> the same model: keys, tensors, rows.
#include "ecphory/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/gguf.h"
#include "model/convert_rows.h"
#include "model/device_weights.h"
#include "model/gguf_source.h"
#include "model/test_models.h"
#include "model/weights.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

using testing::ExpectHas;
using testing::ParseGgufOrDie;
using testing::Values;

// Golden model A, and what conversion made of it.
class ConvertedA : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestDirectory;
    const Status status = Convert(testing::GoldenDir("A"), Path(), {});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string Path() { return *folder_ / "a.gguf"; }
  static std::string Path(const std::string& name) { return *folder_ / name; }

  static TestDirectory* folder_;
};
TestDirectory* ConvertedA::folder_ = nullptr;

TEST_F(ConvertedA, ConfigurationIsTheSame) {
  const auto before = OpenModelSource(testing::GoldenDir("A"));
  const auto after = OpenModelSource(Path());
  ASSERT_TRUE(before.ok() && after.ok()) << after.status().ToString();
  const ModelConfig &a = before->config, &b = after->config;
  EXPECT_EQ(after->format, "gguf");
  EXPECT_EQ(after->dialect, "ds4");
  EXPECT_EQ(b.name, "A");
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.compress_ratios, b.compress_ratios);
  EXPECT_EQ(a.kv_source_layer_ids, b.kv_source_layer_ids);
  EXPECT_EQ(a.index_source_layer_ids, b.index_source_layer_ids);
  EXPECT_EQ(a.candidate_source_layer_id, b.candidate_source_layer_id);
  EXPECT_EQ(a.candidate_topk_blocks, b.candidate_topk_blocks);
  EXPECT_EQ(a.yarn.factor, b.yarn.factor);
  EXPECT_EQ(a.yarn.original_max_positions, b.yarn.original_max_positions);
  EXPECT_EQ(a.routed_scaling_factor, b.routed_scaling_factor);
  EXPECT_EQ(a.hc_eps, b.hc_eps);
  EXPECT_EQ(a.image_token_id, b.image_token_id);
  EXPECT_EQ(a.bos_token_id, b.bos_token_id);
  EXPECT_EQ(a.eos_token_id, b.eos_token_id);
  EXPECT_EQ(a.engram.rows, b.engram.rows);
  EXPECT_EQ(a.engram.max_ngram, b.engram.max_ngram);
  EXPECT_EQ(a.engram.heads, b.engram.heads);
  EXPECT_EQ(a.engram.head_dim, b.engram.head_dim);
  EXPECT_EQ(a.engram.vocab_size, b.engram.vocab_size);
  EXPECT_EQ(before->token_map, after->token_map);
}

TEST_F(ConvertedA, MultipliersAbove2To53AreKept) {
  const auto before = OpenModelSource(testing::GoldenDir("A"));
  const auto after = OpenModelSource(Path());
  ASSERT_TRUE(before.ok() && after.ok());
  const auto a = MakeHasher(*before), b = MakeHasher(*after);
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
  EXPECT_EQ(a->pad_id(), b->pad_id());
  EXPECT_GT(b->layout().layers[0].multipliers[0], uint64_t{1} << 53);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a->layout().layers[i].multipliers,
              b->layout().layers[i].multipliers);
    EXPECT_EQ(a->layout().layers[i].primes, b->layout().layers[i].primes);
  }
}

std::vector<float> Dequantized(const Matrix& matrix) {
  std::vector<float> values(matrix.rows * matrix.cols);
  for (size_t r = 0; r < matrix.rows; ++r) {
    DequantizeRow(matrix, r, values.data() + r * matrix.cols);
  }
  return values;
}

TEST_F(ConvertedA, TensorsBindWithTheTypesOfTheFormat) {
  const auto source = OpenModelSource(Path());
  ASSERT_TRUE(source.ok());
  const auto weights = LoadWeights(*source);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const LayerWeights& layer = weights->layers[2];
  EXPECT_EQ(weights->embed.format, WeightFormat::kF16);
  EXPECT_EQ(weights->head.format, WeightFormat::kQ8_0);
  EXPECT_EQ(layer.attn.wo_b.format, WeightFormat::kQ8_0);
  EXPECT_EQ(layer.moe.shared.w1.format, WeightFormat::kQ8_0);
  EXPECT_EQ(layer.moe.experts[3].w1.format, WeightFormat::kMXFP4);
  EXPECT_EQ(layer.moe.gate.format, WeightFormat::kF32);
  EXPECT_EQ(layer.hc_attn.fn.format, WeightFormat::kF16);
  EXPECT_EQ(layer.attn.indexer.wq_b.format, WeightFormat::kF16);
  EXPECT_EQ(weights->layers[1].engram.wkv.format, WeightFormat::kF16);
  EXPECT_EQ(weights->mappings.size(), 1u);
}

TEST_F(ConvertedA, ValuesSurvive) {
  const auto before = OpenModelSource(testing::GoldenDir("A"));
  const auto after = OpenModelSource(Path());
  ASSERT_TRUE(before.ok() && after.ok());
  const auto a = LoadWeights(*before), b = LoadWeights(*after);
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
  for (size_t l = 0; l < 6; ++l) {
    const LayerWeights &x = a->layers[l], &y = b->layers[l];
    for (size_t e = 0; e < 8; ++e) {
      EXPECT_EQ(Dequantized(x.moe.experts[e].w1),
                Dequantized(y.moe.experts[e].w1));
      EXPECT_EQ(Dequantized(x.moe.experts[e].w2),
                Dequantized(y.moe.experts[e].w2));
    }
    EXPECT_EQ(Values(x.attn_norm), Values(y.attn_norm));
    EXPECT_EQ(Values(x.attn.sink), Values(y.attn.sink));
    EXPECT_EQ(Values(x.hc_ffn.scale), Values(y.hc_ffn.scale));
    EXPECT_EQ(Values(x.moe.bias_image), Values(y.moe.bias_image));
    EXPECT_EQ(Dequantized(x.moe.gate), Dequantized(y.moe.gate));
    EXPECT_EQ(Values(x.engram.q_weight), Values(y.engram.q_weight));
  }
  EXPECT_EQ(Dequantized(a->embed), Dequantized(b->embed));
  const std::vector<float> q8 = Dequantized(b->layers[0].attn.wkv);
  const std::vector<float> fp8 = Dequantized(a->layers[0].attn.wkv);
  for (size_t block = 0; block < q8.size(); block += 32) {
    float amax = 0;
    for (size_t i = 0; i < 32; ++i) {
      amax = std::max(amax, std::fabs(fp8[block + i]));
    }
    for (size_t i = 0; i < 32; ++i) {
      // Half a step of the code, and what fp16 takes from d at 127 steps.
      EXPECT_NEAR(q8[block + i], fp8[block + i], amax / 127 * 0.57f);
    }
  }
}

// The host's memory as that of a device which weights are copied to.
class Elsewhere : public Device {
 public:
  const std::string& name() const override { return host_.name(); }
  const Ops& ops() const override { return host_.ops(); }
  bool is_host() const override { return false; }
  bool takes_int8() const override { return host_.takes_int8(); }
  Result<void*> Allocate(size_t bytes, MemoryKind kind) override {
    return host_.Allocate(bytes, kind);
  }
  void Free(void* memory, MemoryKind kind) override {
    host_.Free(memory, kind);
  }
  Status Upload(void* to, const void* from, size_t bytes) override {
    return host_.Upload(to, from, bytes);
  }
  Status Download(void* to, const void* from, size_t bytes) override {
    return host_.Download(to, from, bytes);
  }
  Result<std::unique_ptr<Queue>> NewQueue() override {
    return host_.NewQueue();
  }
  Result<DeviceMemory> memory() const override { return host_.memory(); }
  Result<uint64_t> ScratchBytes(const ScratchShape& shape) const override {
    return host_.ScratchBytes(shape);
  }

 private:
  Device& host_ = HostDevice();
};

// Experts of MXFP4 lie in one tensor, an expert after the other.
TEST_F(ConvertedA, DevicesKeepMxfp4AsFp4Rows) {
  const auto source = OpenModelSource(Path());
  ASSERT_TRUE(source.ok());
  Elsewhere device;
  ThreadPool pool(2);
  const auto a = LoadWeights(*source);
  const auto b = LoadWeights(*source, {.pool = &pool, .device = &device});
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
  EXPECT_EQ(b->mapped_bytes, *DeviceWeightBytes(*source) - b->resident_bytes -
                                 6 * 9 * sizeof(Expert));
  for (size_t l = 0; l < 6; ++l) {
    const LayerWeights &x = a->layers[l], &y = b->layers[l];
    for (size_t e = 0; e < 8; ++e) {
      for (Matrix Expert::*part : {&Expert::w1, &Expert::w3, &Expert::w2}) {
        const Matrix& kept = y.moe.experts[e].*part;
        EXPECT_EQ(WeightFormat::kFp4Row32, kept.format);
        EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(kept.data) % 16);
        EXPECT_EQ(Dequantized(x.moe.experts[e].*part), Dequantized(kept));
      }
    }
    EXPECT_EQ(WeightFormat::kQ8_0, y.attn.wo_b.format);
    EXPECT_EQ(Dequantized(x.attn.wo_b), Dequantized(y.attn.wo_b));
    EXPECT_EQ(Dequantized(x.moe.gate), Dequantized(y.moe.gate));
  }
}

TEST_F(ConvertedA, TableRowsAreCodesThenScales) {
  testing::ModelDir golden;
  const auto source = OpenModelSource(Path());
  ASSERT_TRUE(source.ok());
  const TensorInfo* table = source->Find("layers.3.engram.embed");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->shape, (std::vector<uint64_t>{3424, 66}));
  const std::string file = testing::ReadFileOrDie(Path());
  const std::string& codes = golden.At("layers.3.engram.embed.weight").bytes;
  const std::string& scales = golden.At("layers.3.engram.embed.scale").bytes;
  std::string expected;
  for (size_t r = 0; r < 3424; ++r) {
    expected += codes.substr(r * 64, 64) + scales.substr(r * 2, 2);
  }
  EXPECT_EQ(file.substr(table->offset, table->bytes), expected);
}

TEST_F(ConvertedA, TablesEndTheFileAndStayUnmapped) {
  const auto source = OpenModelSource(Path());
  ASSERT_TRUE(source.ok());
  const auto& tensors = source->index.tensors();
  const TensorInfo& first_table = tensors[tensors.size() - 2];
  EXPECT_EQ(first_table.name, "blk.1.engram_embd.weight");
  EXPECT_EQ(tensors.back().name, "blk.3.engram_embd.weight");
  EXPECT_EQ(source->index.files()[0].size % 16384, 0u);
  for (const TensorInfo& tensor : tensors) {
    EXPECT_EQ(tensor.offset % 16384, 0u) << tensor.name;
  }
  const auto weights = LoadWeights(*source);
  ASSERT_TRUE(weights.ok());
  EXPECT_LE(weights->mapped_bytes, first_table.offset - tensors[0].offset);
}

TEST_F(ConvertedA, InfoOfTheFile) {
  const auto info = InspectModel(Path(), 0, 0);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->dialect, "ds4");
  EXPECT_TRUE(info->unused.empty());
  EXPECT_EQ(info->engram_tables[0].codec, "e4m3_e8m0_32_row66");
  EXPECT_EQ(info->engram_tables[1].row_bytes, 66u);
}

TEST_F(ConvertedA, OrderWithinALayer) {
  const GgufFile file = ParseGgufOrDie(Path());
  std::vector<std::string> names;
  for (const TensorInfo& tensor : file.index().tensors()) {
    if (tensor.name.rfind("blk.2.", 0) == 0) {
      names.push_back(tensor.name.substr(6));
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"hc_attn_fn.weight",
                                             "hc_attn_base.weight",
                                             "hc_attn_scale.weight",
                                             "attn_norm.weight",
                                             "hc_ffn_fn.weight",
                                             "hc_ffn_base.weight",
                                             "hc_ffn_scale.weight",
                                             "ffn_norm.weight",
                                             "attn_sinks.weight",
                                             "attn_q_a.weight",
                                             "attn_q_b.weight",
                                             "attn_q_a_norm.weight",
                                             "attn_kv.weight",
                                             "attn_kv_a_norm.weight",
                                             "attn_output_a.weight",
                                             "attn_output_b.weight",
                                             "attn_compressor_kv.weight",
                                             "attn_compressor_norm.weight",
                                             "indexer.attn_k.weight",
                                             "indexer.k_norm.weight",
                                             "attn_compressor_gate.weight",
                                             "indexer.attn_q_b.weight",
                                             "indexer.proj.weight",
                                             "ffn_gate_inp.weight",
                                             "exp_probs_b.bias",
                                             "exp_probs_b_vl.bias",
                                             "ffn_gate_shexp.weight",
                                             "ffn_gate_exps.weight",
                                             "ffn_up_shexp.weight",
                                             "ffn_up_exps.weight",
                                             "ffn_down_shexp.weight",
                                             "ffn_down_exps.weight"}));
}

TEST_F(ConvertedA, ExpertsAsQ8) {
  ConvertOptions options;
  options.experts = ConvertOptions::Experts::kQ8_0;
  ASSERT_TRUE(Convert(testing::GoldenDir("A"), Path("q8.gguf"), options).ok());
  const auto source = OpenModelSource(Path("q8.gguf"));
  ASSERT_TRUE(source.ok());
  const auto weights = LoadWeights(*source);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  EXPECT_EQ(weights->layers[0].moe.experts[0].w1.format, WeightFormat::kQ8_0);
  ExpectHas(
      *ParseGgufOrDie(Path("q8.gguf")).GetString("deepseek41.quantization"),
      "Q8_0 experts; Q8_0 attention/shared/head; F16 token_embd");
}

TEST_F(ConvertedA, CancelledLeavesNothing) {
  const TestDirectory folder;
  ConvertOptions options;
  options.progress = [](uint64_t, uint64_t) { return false; };
  const Status status =
      Convert(testing::GoldenDir("A"), folder / "x.gguf", options);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(folder.List().empty());
}

TEST_F(ConvertedA, OnlyDirectoriesAreConverted) {
  EXPECT_EQ(Convert(Path(), Path("again.gguf"), {}).code(),
            StatusCode::kInvalidArgument);
}

TEST(Convert, TokenizerSurvives) {
  const TestDirectory folder;
  const Status status = Convert(testing::TrainerDir(), folder / "t.gguf", {});
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto before = OpenModelSource(testing::TrainerDir());
  const auto after = OpenModelSource(folder / "t.gguf");
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  ASSERT_TRUE(after->tokenizer);
  const TokenizerData &a = before->tokenizer->data(),
                      &b = after->tokenizer->data();
  EXPECT_EQ(a.merges, b.merges);
  ASSERT_EQ(a.added.size(), b.added.size());
  for (size_t i = 0; i < a.added.size(); ++i) {
    EXPECT_EQ(a.added[i].content, b.added[i].content);
    EXPECT_EQ(a.added[i].special, b.added[i].special);
  }
  EXPECT_EQ(a.bos_id, b.bos_id);
  const std::string text = "The lynx, a cat: 1234 \xe4\xbd\xa0\n";
  EXPECT_EQ(*before->tokenizer->Encode(text), *after->tokenizer->Encode(text));
}

TEST(Convert, EmbeddingBeyondF16StaysBF16) {
  testing::ModelDir model(testing::GoldenDir("B"));
  const uint16_t huge = F32ToBF16(1e30f);
  std::memcpy(model.At("embed.weight").bytes.data(), &huge, 2);
  const TestDirectory folder;
  ASSERT_TRUE(Convert(model.Write(), folder / "b.gguf", {}).ok());
  const auto source = OpenModelSource(folder / "b.gguf");
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->Find("embed")->dtype, DType::kBF16);
}

TEST(Convert, SmallMatricesThatOverflowF16StayWide) {
  testing::ModelDir model(testing::GoldenDir("B"));
  const float huge = 1e30f;
  std::memcpy(model.At("layers.0.hc_attn_fn").bytes.data(), &huge, 4);
  const TestDirectory folder;
  ASSERT_TRUE(Convert(model.Write(), folder / "b.gguf", {}).ok());
  const auto source = OpenModelSource(folder / "b.gguf");
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->Find("layers.0.hc_attn_fn")->dtype, DType::kF32);
  EXPECT_EQ(source->Find("layers.1.hc_attn_fn")->dtype, DType::kF16);
}

TEST(Convert, NanWeightsAreRefusedWithTheirRow) {
  testing::ModelDir model(testing::GoldenDir("B"));
  model.At("layers.0.attn.wkv.weight").bytes[3 * 192] = '\x7f';
  const TestDirectory folder;
  const Status status = Convert(model.Write(), folder / "b.gguf", {});
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  ExpectHas(status.message(),
            "'layers.0.attn.wkv.weight': row 3 is not finite");
  EXPECT_TRUE(folder.List().empty());
}

TEST(Convert, Mxfp4TakesOnlyPackedFp4) {
  testing::ModelDir model(testing::GoldenDir("B"));
  testing::TestTensor& expert = model.At("layers.2.ffn.experts.1.w1.weight");
  expert.dtype = "BF16";
  expert.shape[1] *= 2;
  expert.bytes.assign(expert.bytes.size() * 4, '\0');
  const TestDirectory folder;
  const Status status = Convert(model.Write(), folder / "b.gguf", {});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  ExpectHas(status.message(), "layers.2.ffn.experts.1.w1.weight");
}

// ---- codecs ----

TEST(ConvertRows, Q8BlockOfKnownValues) {
  float x[32] = {127, -127, 63.4f, 0.6f, -0.4f};
  uint8_t out[34];
  ASSERT_TRUE(EncodeQ8Weights(x, 32, out));
  uint16_t d;
  std::memcpy(&d, out, 2);
  EXPECT_EQ(F16ToF32(d), 1);
  const int8_t expected[] = {127, -127, 63, 1, 0, 0};
  EXPECT_EQ(std::memcmp(out + 2, expected, sizeof(expected)), 0);
}

TEST(ConvertRows, Q8BlocksOfZerosAndSubnormals) {
  float x[32] = {};
  uint8_t out[34];
  ASSERT_TRUE(EncodeQ8Weights(x, 32, out));
  for (const uint8_t byte : out) EXPECT_EQ(byte, 0);
  x[0] = 1e-44f;
  ASSERT_TRUE(EncodeQ8Weights(x, 32, out));
}

TEST(ConvertRows, Q8RefusesWhatIsNotFinite) {
  float x[32] = {};
  uint8_t out[34];
  x[5] = NAN;
  EXPECT_FALSE(EncodeQ8Weights(x, 32, out));
  x[5] = 1e38f;  // d is beyond fp16
  EXPECT_FALSE(EncodeQ8Weights(x, 32, out));
}

TEST(ConvertRows, Mxfp4NibbleOrder) {
  uint8_t codes[16], out[17];
  for (uint8_t i = 0; i < 16; ++i) {
    codes[i] = static_cast<uint8_t>((2 * i % 16) | ((2 * i + 1) % 16) << 4);
  }
  const uint8_t scale = 120;
  RepackMxfp4Row(codes, &scale, 32, out);
  EXPECT_EQ(out[0], 120);
  for (uint8_t i = 0; i < 16; ++i) EXPECT_EQ(out[1 + i], i | i << 4);
}

}  // namespace
}  // namespace ecphory
