// GGUF files as model sources: other dialects, missing keys, and files that
// were damaged on purpose.
#include "model/gguf_source.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <span>
#include <tuple>

#include "ecphory/convert.h"
#include "format/gguf_parts_testing.h"
#include "model/stored_tensor.h"
#include "model/test_models.h"
#include "model/testing.h"
#include "model/weights.h"

namespace ecphory {
namespace {

using testing::ExpectHas;
using testing::ParseGgufOrDie;

void CopyArray(const std::string& key, const GgufValue& value, GgufWriter* w) {
  if (value.type == GgufType::kString) {
    w->AddStringArray(key, std::get<std::vector<std::string>>(value.value));
  } else if (value.type == GgufType::kU64) {
    w->AddUint64Array(key, std::get<std::vector<uint64_t>>(value.value));
  } else if (value.type == GgufType::kU32) {
    const auto& wide = std::get<std::vector<uint64_t>>(value.value);
    w->AddUint32Array(key, {wide.begin(), wide.end()});
  } else {
    const auto& wide = std::get<std::vector<int64_t>>(value.value);
    w->AddInt32Array(key, {wide.begin(), wide.end()});
  }
}

void CopyValue(const std::string& key, const GgufValue& value, GgufWriter* w) {
  if (value.is_array) return CopyArray(key, value, w);
  switch (value.type) {
    case GgufType::kString:
      return w->AddString(key, std::get<std::string>(value.value));
    case GgufType::kF32:
      return w->AddFloat32(key,
                           static_cast<float>(std::get<double>(value.value)));
    case GgufType::kBool: return w->AddBool(key, std::get<bool>(value.value));
    default:
      return w->AddUint32(
          key, static_cast<uint32_t>(std::get<uint64_t>(value.value)));
  }
}

// What to change when a file is copied.
struct Edit {
  std::set<std::string> drop = {};                 // keys and tensors
  std::function<void(GgufWriter*)> add = nullptr;  // keys instead
  bool tensors = true;
};

// Golden model A as a file, and damaged copies of it.
class DamagedGguf : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestDirectory;
    const Status status = Convert(testing::GoldenDir("A"), Path(), {});
    ASSERT_TRUE(status.ok()) << status.ToString();
    whole_ = new GgufFile(ParseGgufOrDie(Path()));
    bytes_ = new std::string(testing::ReadFileOrDie(Path()));
  }
  static void TearDownTestSuite() {
    delete bytes_;
    delete whole_;
    delete folder_;
  }
  static std::string Path(const std::string& name = "a.gguf") {
    return *folder_ / name;
  }
  static const GgufFile& whole() { return *whole_; }
  static const std::string& bytes() { return *bytes_; }

  // A copy with changes; its path.
  static std::string Damage(const Edit& edit) {
    GgufWriter writer(16384);
    for (const std::string& key : whole().Keys()) {
      if (key == "general.alignment" || edit.drop.count(key)) continue;
      CopyValue(key, *whole().Find(key), &writer);
    }
    if (edit.add) edit.add(&writer);
    for (const TensorInfo& tensor : whole().index().tensors()) {
      if (!edit.tensors || edit.drop.count(tensor.name)) continue;
      const auto* data = reinterpret_cast<const uint8_t*>(bytes().data());
      const std::span<const uint8_t> part(data + tensor.offset, tensor.bytes);
      const auto produce = [part](const GgufWriter::Sink& sink) {
        return sink(part);
      };
      EXPECT_TRUE(
          writer.AddTensor(tensor.name, tensor.dtype, tensor.shape, produce)
              .ok());
    }
    EXPECT_TRUE(writer.WriteTo(Path("damaged.gguf"), {}).ok());
    return Path("damaged.gguf");
  }

  // One value of an integer array changed.
  static Edit Poke(const std::string& key, size_t index, uint64_t value) {
    std::vector<uint64_t> values = *whole().GetUintArray(key);
    values[index] = value;
    return {.drop = {key}, .add = [key, values](GgufWriter* w) {
              w->AddUint64Array(key, values);
            }};
  }

  // The metadata of the copy, as a configuration.
  static std::string ConfigError(Edit edit) {
    edit.tensors = false;
    const auto config = ParseConfigGguf(ParseGgufOrDie(Damage(edit)));
    return config.ok() ? "parsed" : config.status().message();
  }
  static std::string OpenError(const Edit& edit) {
    const auto source = OpenModelSource(Damage(edit));
    if (!source.ok()) return source.status().message();
    const auto weights = LoadWeights(*source);
    return weights.ok() ? "loaded" : weights.status().message();
  }

  static TestDirectory* folder_;
  static GgufFile* whole_;
  static std::string* bytes_;
};
TestDirectory* DamagedGguf::folder_ = nullptr;
GgufFile* DamagedGguf::whole_ = nullptr;
std::string* DamagedGguf::bytes_ = nullptr;

TEST_F(DamagedGguf, TheCopyItselfIsWhole) {
  EXPECT_EQ(OpenError({}), "loaded");
}

TEST_F(DamagedGguf, InPartsItGivesTheSameLogits) {
  const std::string first = gguf_bytes::WriteParts(Path(), Path("parts"), 3);
  const auto whole = testing::OpenOrDie(Path(), "cpu");
  const auto parts = testing::OpenOrDie(first, "cpu");
  const std::vector<int32_t> tokens = {5, 1, 4, 1, 5, 9, 2, 6};
  EXPECT_EQ(testing::RunLogits(parts, tokens, {}),
            testing::RunLogits(whole, tokens, {}));
}

TEST_F(DamagedGguf, EachMissingKeyIsNamed) {
  const std::set<std::string> not_needed = {
      "config",      "gate_temp",  "image_token_id",           "quantization",
      "topk_method", "hidden_act", "candidate_source_layer_id"};
  size_t tried = 0;
  for (const std::string& key : whole().Keys()) {
    if (key.rfind("deepseek41.", 0) != 0) continue;
    if (not_needed.count(key.substr(11))) continue;
    ExpectHas(ConfigError({.drop = {key}}), "missing key " + key);
    ++tried;
  }
  EXPECT_GE(tried, 40u);
}

TEST_F(DamagedGguf, ValuesWithoutAKeyComeFromTheStoredConfig) {
  const auto config = ParseConfigGguf(ParseGgufOrDie(Damage(
      {.drop = {"deepseek41.image_token_id", "tokenizer.ggml.eos_token_id"},
       .tensors = false})));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->image_token_id, 509);
  EXPECT_EQ(config->eos_token_id, 1);
}

TEST_F(DamagedGguf, OtherArchitecturesByName) {
  const auto as = [&](const char* name) {
    return ConfigError(
        {.drop = {"general.architecture"}, .add = [name](GgufWriter* w) {
           w->AddString("general.architecture", name);
         }});
  };
  ExpectHas(as("llama"), "found 'llama', supported is 'deepseek41'");
  ExpectHas(as("deepseek4"), "found 'deepseek4' (DeepSeek V4)");
}

TEST_F(DamagedGguf, LlamaCppDialectByNameAndByWhatItLacks) {
  GgufWriter writer(32);
  writer.AddString("general.architecture", "deepseek41");
  writer.AddUint32("deepseek41.embedding_length", 5120);
  writer.AddUint32("deepseek41.block_count", 40);
  writer.AddUint32("deepseek41.vocab_size", 129280);
  ASSERT_TRUE(writer.WriteTo(Path("llama.gguf"), {}).ok());
  const Status status = OpenModelSource(Path("llama.gguf")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  ExpectHas(status.message(), "llama.cpp key dialect");
  ExpectHas(status.message(), "kv_source_layer_ids, index_source_layer_ids");
  EXPECT_EQ(status.message().find("hidden_size"), std::string::npos);
}

TEST_F(DamagedGguf, TablesWithoutAModelAreSaidToBeThat) {
  Edit tables;
  for (const std::string& key : whole().Keys()) {
    const bool ours = key.rfind("deepseek41.", 0) == 0;
    const bool engram = key.rfind("deepseek41.engram.", 0) == 0;
    if (ours && !engram) tables.drop.insert(key);
  }
  const Status status = OpenModelSource(Damage(tables)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  ExpectHas(status.message(), "Engram tables without a model");
}

TEST_F(DamagedGguf, EngramKeysWithoutTensorsAndTheReverse) {
  ExpectHas(OpenError({.drop = {"blk.3.engram_embd.weight"}}),
            "missing tensor 'blk.3.engram_embd.weight'");
  ExpectHas(OpenError({.drop = {"blk.1.engram_kv.weight"}}),
            "missing tensor 'blk.1.engram_kv.weight'");
  Edit no_keys;
  for (const std::string& key : whole().Keys()) {
    if (key.rfind("deepseek41.engram.", 0) == 0) no_keys.drop.insert(key);
  }
  ExpectHas(OpenError(no_keys), "names no Engram in layer 1");
}

TEST_F(DamagedGguf, EngramNumbers) {
  const std::string prefix = "deepseek41.engram.";
  ExpectHas(OpenError(Poke(prefix + "token_map", 9, 394)),
            "token 9 has compressed id 394, expected 0..393");
  for (const auto& [key, index, value] :
       {std::tuple{"multipliers", 2, uint64_t{1} << 40},  // even
        std::tuple{"multipliers", 2, ~uint64_t{0}},       // product overflows
        std::tuple{"primes", 1, uint64_t{510}},           // not prime
        std::tuple{"primes", 1, uint64_t{503}},           // twice
        std::tuple{"rows", 0, uint64_t{3145}},            // not their sum
        std::tuple{"layer_ids", 1, uint64_t{6}}}) {       // no such layer
    const std::string error =
        OpenError(Poke(prefix + key, static_cast<size_t>(index), value));
    EXPECT_NE(error, "loaded") << key << " " << value;
    ExpectHas(error, "damaged.gguf");
  }
  ExpectHas(OpenError({.drop = {prefix + "pad_id"},
                       .add =
                           [&](GgufWriter* w) {
                             w->AddUint32(prefix + "pad_id", 394);
                           }}),
            "engram.pad_id: found 394");
}

// Numbers that are valid in themselves but not those of the stored config.
TEST_F(DamagedGguf, NumbersThatContradictTheStoredConfig) {
  ExpectHas(OpenError(Poke("deepseek41.engram.multipliers", 0, 12345)),
            "engram.multipliers of layer 1: not those");
}

TEST_F(DamagedGguf, Encodings) {
  const auto with = [&](const char* name) {
    return ConfigError(
        {.drop = {"deepseek41.engram.encoding"}, .add = [name](GgufWriter* w) {
           w->AddString("deepseek41.engram.encoding", name);
         }});
  };
  EXPECT_EQ(with("e4m3_e8m0_32_row264"), "parsed");
  for (const char* bad : {"bf16", "e4m3_e8m0_32_row", "e4m3_e8m0_32_row65",
                          "e4m3_e8m0_32_row66x", "e4m3_e8m0_32_row0"}) {
    ExpectHas(with(bad), "deepseek41.engram.encoding: found");
  }
}

TEST_F(DamagedGguf, StreamCountThatContradictsTheShapes) {
  for (const auto& [streams, part] :
       {std::pair{1u, "hc_mult: found 1 streams"},
        std::pair{17u, "hc_mult: found 17 streams"},
        std::pair{5u, "'blk.0.hc_attn_fn.weight': found F16 [24, 512]"}}) {
    const uint32_t count = streams;
    ExpectHas(OpenError({.drop = {"deepseek41.hc_mult"},
                         .add =
                             [count](GgufWriter* w) {
                               w->AddUint32("deepseek41.hc_mult", count);
                             }}),
              part);
  }
}

TEST_F(DamagedGguf, TableTruncatedInsideItsLastRow) {
  const TensorInfo& last = whole().index().tensors().back();
  testing::WriteFileOrDie(Path("cut.gguf"),
                          bytes().substr(0, last.offset + last.bytes - 3));
  EXPECT_EQ(OpenModelSource(Path("cut.gguf")).status().code(),
            StatusCode::kCorrupt);
}

TEST_F(DamagedGguf, TableOfZerosIsRefused) {
  const TensorInfo& last = whole().index().tensors().back();
  std::string zeroed = bytes();
  zeroed.replace(last.offset, last.bytes, std::string(last.bytes, '\0'));
  testing::WriteFileOrDie(Path("zeros.gguf"), zeroed);
  const auto source = OpenModelSource(Path("zeros.gguf"));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const auto tables = EngramTables(*source);
  ASSERT_TRUE(tables.ok());
  ExpectHas(engram::Store::Open(*tables, {}).status().message(),
            "blk.3.engram_embd.weight");
}

// A tensor of zeros in a type, in place of the file's own.
void AddZeros(const std::string& name, DType dtype,
              const std::vector<uint64_t>& shape, GgufWriter* w) {
  uint64_t values = 1;
  for (const uint64_t extent : shape) values *= extent;
  const Result<uint64_t> bytes = DTypeBytes(dtype, values);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  const std::vector<uint8_t> zeros(*bytes);
  const auto produce = [zeros](const GgufWriter::Sink& sink) {
    return sink(zeros);
  };
  ASSERT_TRUE(w->AddTensor(name, dtype, shape, produce).ok());
}

TEST_F(DamagedGguf, MatricesOfSuperBlocksBindAloneAndStacked) {
  for (const auto& [dtype, format, block_bytes] :
       {std::tuple(DType::kQ4_K, WeightFormat::kQ4_K, 144u),
        std::tuple(DType::kQ2_K, WeightFormat::kQ2_K, 84u),
        std::tuple(DType::kIQ2_XXS, WeightFormat::kIQ2_XXS, 66u)}) {
    const DType type = dtype;
    const auto source = OpenModelSource(
        Damage({.drop = {"output.weight", "blk.1.ffn_up_exps.weight"},
                .add = [type](GgufWriter* w) {
                  AddZeros("output.weight", type, {7, 512}, w);
                  AddZeros("blk.1.ffn_up_exps.weight", type, {3, 5, 256}, w);
                }}));
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    TensorSlot head;
    head.name = "head";
    head.role = TensorRole::kDense;
    head.shape = {7, 512};
    const auto one = FindMatrices(*source, head);
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    EXPECT_EQ((*one)[0].format, format);
    EXPECT_EQ((*one)[0].cols, 512u);
    TensorSlot experts;
    experts.name = "layers.1.ffn.experts.w3";
    experts.role = TensorRole::kExperts;
    experts.shape = {3, 5, 256};
    const auto stack = FindMatrices(*source, experts);
    ASSERT_TRUE(stack.ok()) << stack.status().ToString();
    ASSERT_EQ(stack->size(), 3u);
    EXPECT_EQ((*stack)[2].format, format);
    EXPECT_EQ((*stack)[2].rows, 5u);
    EXPECT_EQ((*stack)[2].data_offset, 2u * 5 * block_bytes);
  }
}

TEST_F(DamagedGguf, TypesWithoutAKernelAreRefusedWithThoseThatHaveOne) {
  const std::string readable =
      ", expected F32, F16, BF16, Q8_0, MXFP4, Q4_K, Q2_K or IQ2_XXS";
  // I8 is packed FP4 in a released directory, and nothing in GGUF.
  for (const DType type : {DType::kQ4_0, DType::kI8}) {
    const auto add_head = [=](GgufWriter* w) {
      AddZeros("output.weight", type, {7, 512}, w);
    };
    const std::string error =
        OpenError({.drop = {"output.weight"}, .add = add_head});
    ExpectHas(error, std::string("'output.weight': found type ") +
                         DTypeName(type) + readable);
    EXPECT_EQ(error.substr(error.size() - readable.size()), readable);
  }
}

// Of a stack of experts, the row of the stack.
TEST_F(DamagedGguf, BrokenScalesInsideRowsAreRefusedWithTheirPlace) {
  std::string path = Path("scale.gguf");
  for (const auto& [name, row, at, value] :
       {std::tuple("output.weight", 5u, 34 + 1, '\x7c'),
        std::tuple("blk.2.ffn_gate_exps.weight", 70u, 17, '\xff')}) {
    std::string damaged = bytes();
    const TensorInfo* tensor = whole().index().Find(name);
    ASSERT_NE(tensor, nullptr);
    const uint64_t rows = tensor->values() / tensor->shape.back();
    damaged[tensor->offset + tensor->bytes / rows * row +
            static_cast<size_t>(at)] = value;
    std::ofstream(path, std::ios::binary) << damaged;
    const auto source = OpenModelSource(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    const auto weights = LoadWeights(*source);
    ASSERT_FALSE(weights.ok()) << name;
    ExpectHas(weights.status().message(), std::string("tensor '") + name +
                                              "': row " + std::to_string(row) +
                                              " has an infinite or NaN scale");
  }
}

}  // namespace
}  // namespace ecphory
