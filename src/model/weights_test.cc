#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "model/test_models.h"
#include "model/weight_mapping.h"
#include "tensor/float_codec.h"

namespace ecphory {
namespace {

using testing::ExpectHas;
using testing::Values;

Result<Weights> Load(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const ModelSource source, OpenModelSource(path));
  return LoadWeights(source);
}

// The message of a model that must be refused.
std::string LoadError(testing::ModelDir* model) {
  const Result<Weights> weights = Load(model->Write());
  return weights.ok() ? "loaded" : weights.status().message();
}

TEST(Weights, GoldenModelsBind) {
  for (const char* name : {"A", "B", "C"}) {
    const Result<Weights> weights = Load(testing::GoldenDir(name));
    ASSERT_TRUE(weights.ok()) << name << ": " << weights.status().ToString();
    EXPECT_FALSE(weights->embed.empty());
    EXPECT_GT(weights->mapped_bytes, 0u);
    EXPECT_GT(weights->resident_bytes, 0u);
  }
}

TEST(Weights, FormatsAreThoseOfTheFile) {
  const Result<Weights> weights = Load(testing::GoldenDir("A"));
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const LayerWeights& layer = weights->layers[2];
  EXPECT_EQ(weights->embed.format, WeightFormat::kBF16);
  EXPECT_EQ(layer.attn.wq_a.format, WeightFormat::kFp8Tile32);
  EXPECT_EQ(layer.moe.experts[7].w2.format, WeightFormat::kFp4Row32);
  EXPECT_EQ(layer.moe.experts[7].w2.rows, 128u);
  EXPECT_EQ(layer.moe.experts[7].w2.cols, 64u);
  EXPECT_EQ(layer.hc_ffn.fn.format, WeightFormat::kF32);
  EXPECT_EQ(layer.attn.wo_a.rows, 64u);
  EXPECT_EQ(layer.attn.wo_a.cols, 128u);
  EXPECT_FALSE(layer.attn.compressor.wgate.empty());
  EXPECT_TRUE(weights->layers[4].attn.compressor.wgate.empty());
  EXPECT_TRUE(weights->layers[3].attn.indexer.wq_b.empty());
  EXPECT_EQ(weights->layers[1].engram.q_weight.size(), 4u * 128);
  EXPECT_TRUE(weights->layers[0].engram.q_weight.empty());
}

TEST(Weights, ViewsHoldTheFilesBytes) {
  testing::ModelDir model;
  const Result<Weights> weights = Load(model.Write());
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const auto same = [&](const std::string& name, const uint8_t* data) {
    const std::string& bytes = model.At(name).bytes;
    EXPECT_EQ(std::memcmp(bytes.data(), data, bytes.size()), 0) << name;
  };
  const LayerWeights& layer = weights->layers[3];
  same("embed.weight", weights->embed.data);
  same("layers.3.attn.wkv.weight", layer.attn.wkv.data);
  same("layers.3.attn.wkv.scale", layer.attn.wkv.scales);
  same("layers.3.ffn.experts.5.w3.weight", layer.moe.experts[5].w3.data);
  same("layers.3.ffn.experts.5.w3.scale", layer.moe.experts[5].w3.scales);
  const std::string& bias = model.At("layers.3.ffn.gate.bias").bytes;
  EXPECT_EQ(std::memcmp(bias.data(), layer.moe.bias.data(), bias.size()), 0);
}

TEST(Weights, NormsMayBeF32OrF16OrBF16) {
  testing::ModelDir model;
  const Result<Weights> before = Load(model.Write());
  ASSERT_TRUE(before.ok());
  testing::TestTensor& norm = model.At("norm.weight");
  norm.dtype = "F16";
  for (size_t i = 0; i < norm.shape[0]; ++i) {
    const uint16_t half = F32ToF16(Values(before->norm)[i]);
    std::memcpy(norm.bytes.data() + 2 * i, &half, 2);
  }
  testing::TestTensor& wide = model.At("layers.0.attn_norm.weight");
  const std::vector<float> values = Values(before->layers[0].attn_norm);
  wide.dtype = "F32";
  wide.bytes.assign(reinterpret_cast<const char*>(values.data()),
                    values.size() * sizeof(float));
  const Result<Weights> after = Load(model.Write());
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ(Values(after->layers[0].attn_norm), values);
  for (size_t i = 0; i < norm.shape[0]; ++i) {
    EXPECT_NEAR(Values(after->norm)[i], Values(before->norm)[i], 1e-3);
  }
}

TEST(Weights, WithoutImageBiasTheTextBiasIsUsed) {
  testing::ModelDir model;
  model.tensors.erase("layers.2.ffn.gate.bias_vl");
  const Result<Weights> weights = Load(model.Write());
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const MoeWeights& moe = weights->layers[2].moe;
  EXPECT_TRUE(moe.bias_image.empty());
  EXPECT_EQ(weights->layers[1].moe.bias_image.size(), moe.bias.size());
}

// Every kind of tensor a model has, by its name in layers that have it.
const char* const kTensorNames[] = {
    "embed.weight",
    "norm.weight",
    "head.weight",
    "layers.0.hc_attn_fn",
    "layers.0.hc_attn_base",
    "layers.0.hc_attn_scale",
    "layers.0.hc_ffn_fn",
    "layers.0.hc_ffn_base",
    "layers.0.hc_ffn_scale",
    "layers.0.attn_norm.weight",
    "layers.0.ffn_norm.weight",
    "layers.0.attn.attn_sink",
    "layers.0.attn.wq_a.weight",
    "layers.0.attn.wq_a.scale",
    "layers.0.attn.wq_b.weight",
    "layers.0.attn.q_norm.weight",
    "layers.0.attn.wkv.weight",
    "layers.0.attn.kv_norm.weight",
    "layers.0.attn.wo_a.weight",
    "layers.0.attn.wo_b.weight",
    "layers.0.attn.wo_b.scale",
    "layers.2.attn.compressor.wkv.weight",
    "layers.2.attn.compressor.wgate.weight",
    "layers.2.attn.compressor.norm.weight",
    "layers.2.attn.indexer.wk.weight",
    "layers.2.attn.indexer.k_norm.weight",
    "layers.5.attn.indexer.wq_b.weight",
    "layers.5.attn.indexer.weights_proj.weight",
    "layers.0.ffn.gate.weight",
    "layers.0.ffn.gate.bias",
    "layers.0.ffn.experts.3.w1.weight",
    "layers.0.ffn.experts.3.w1.scale",
    "layers.0.ffn.experts.7.w2.weight",
    "layers.0.ffn.experts.0.w3.weight",
    "layers.0.ffn.shared_experts.w1.weight",
    "layers.0.ffn.shared_experts.w2.weight",
    "layers.0.ffn.shared_experts.w3.scale",
    "layers.1.engram.q_weight",
    "layers.1.engram.k_weight",
    "layers.1.engram.wkv.weight",
    "layers.1.engram.wkv.scale",
};

std::string WithoutWeight(const std::string& name) {
  const size_t suffix = name.rfind(".weight");
  return suffix == std::string::npos ? name : name.substr(0, suffix);
}

TEST(Weights, EachMissingTensorIsNamed) {
  testing::ModelDir model;
  for (const std::string name : kTensorNames) {
    const testing::TestTensor kept = model.At(name);
    model.tensors.erase(name);
    ExpectHas(LoadError(&model),
              "missing tensor '" + WithoutWeight(name) + "'");
    model.tensors[name] = kept;
  }
}

// The same bytes under another shape: only the shape check can tell.
TEST(Weights, EachWrongShapeIsNamed) {
  testing::ModelDir model;
  for (const std::string name : kTensorNames) {
    testing::TestTensor& tensor = model.At(name);
    const std::vector<uint64_t> kept = tensor.shape;
    tensor.shape.push_back(1);
    const std::string error = LoadError(&model);
    ExpectHas(error, "tensor '" + name + "': found " + tensor.dtype);
    ExpectHas(error, ", 1], expected ");
    tensor.shape = kept;
  }
}

TEST(Weights, StreamCountThatContradictsTheShapes) {
  testing::ModelDir model;
  model.text()["hc_mult"] = 3;
  ExpectHas(LoadError(&model),
            "tensor 'layers.0.hc_attn_fn': found F32 [24, 512], expected "
            "shape [15, 384]");
}

TEST(Weights, TypesWithoutAMeaningAreRefused) {
  testing::ModelDir model;
  testing::TestTensor& head = model.At("head.weight");
  head.dtype = "I16";
  ExpectHas(LoadError(&model),
            "tensor 'head.weight': found type I16, expected F32");
  head.dtype = "BF16";
  testing::TestTensor& sink = model.At("layers.0.attn.attn_sink");
  sink.dtype = "I32";
  ExpectHas(LoadError(&model), "'layers.0.attn.attn_sink': found I32 [4]");
}

TEST(Weights, NanScalesAreRefusedWithTheirPlace) {
  testing::ModelDir model;
  testing::TestTensor& tile = model.At("layers.4.attn.wo_b.scale");
  tile.bytes[5] = '\xff';
  ExpectHas(LoadError(&model),
            "tensor 'layers.4.attn.wo_b.scale': scale [2, 1] is 255 (NaN)");
  tile.bytes[5] = 0;  // 2^-127 is a scale like any other
  testing::TestTensor& row = model.At("layers.5.ffn.experts.7.w2.scale");
  row.bytes.back() = '\xff';
  ExpectHas(LoadError(&model), "scale [127, 1] is 255 (NaN)");
}

TEST(Weights, NanInAVectorIsRefusedWithItsPlace) {
  testing::ModelDir model;
  testing::TestTensor& bias = model.At("layers.2.ffn.gate.bias");
  bias.bytes.replace(4, 4, "\xff\xff\xff\xff");
  ExpectHas(LoadError(&model), "'layers.2.ffn.gate.bias': value 1 is NaN");
}

TEST(Weights, NoMappingHoldsATable) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const Result<Weights> weights = LoadWeights(*source);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  // Each shard has a pair in its middle: before, between and after it.
  EXPECT_GE(weights->mappings.size(), 4u);
  uint64_t mapped = 0, tables = 0, files = 0;
  for (const auto& mapping : weights->mappings) {
    mapped += mapping->bytes().size();
  }
  for (const char* name :
       {"layers.1.engram.embed.weight", "layers.1.engram.embed.scale",
        "layers.3.engram.embed.weight", "layers.3.engram.embed.scale"}) {
    tables += source->index.Find(name)->bytes;
  }
  for (const ModelFile& file : source->index.files()) files += file.size;
  EXPECT_EQ(mapped, weights->mapped_bytes);
  EXPECT_LE(mapped + tables, files);
}

TensorInfo At(size_t file, uint64_t offset, uint64_t bytes) {
  TensorInfo tensor;
  tensor.file = file;
  tensor.offset = offset;
  tensor.bytes = bytes;
  return tensor;
}

TEST(CoverTensors, OneRangeBetweenTwoTables) {
  const TensorInfo a = At(0, 100, 50), b = At(0, 200, 10),
                   table = At(0, 300, 9), c = At(0, 400, 7), d = At(1, 8, 8),
                   last = At(1, 16, 99);
  const std::vector<FileRange> ranges =
      CoverTensors({&c, &b, &d, &a}, {&last, &table});
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].begin, 100u);
  EXPECT_EQ(ranges[0].end, 210u);
  EXPECT_EQ(ranges[1].begin, 400u);
  EXPECT_EQ(ranges[1].end, 407u);
  EXPECT_EQ(ranges[2].file, 1u);
  EXPECT_EQ(ranges[2].end, 16u);
}

TEST(CoverTensors, NothingUsedMapsNothing) {
  const TensorInfo table = At(0, 0, 10);
  EXPECT_TRUE(CoverTensors({}, {&table}).empty());
}

}  // namespace
}  // namespace ecphory
