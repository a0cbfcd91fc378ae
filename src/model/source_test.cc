// Opening released-layout directories, and refusing those that contradict
// themselves.
#include "model/source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/engram_source.h"
#include "model/test_models.h"

namespace ecphory {
namespace {

using testing::ExpectHas;

Status OpenStatus(testing::ModelDir* model) {
  return OpenModelSource(model->Write()).status();
}

std::string OpenError(testing::ModelDir* model) {
  const Status status = OpenStatus(model);
  return status.ok() ? "opened" : status.message();
}

TEST(Source, GoldenDirectoriesOpen) {
  for (const char* name : {"A", "B", "C"}) {
    const Result<ModelSource> source =
        OpenModelSource(testing::GoldenDir(name));
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_EQ(source->format, "safetensors");
    EXPECT_EQ(source->dialect, "");
    EXPECT_FALSE(source->tokenizer);
    EXPECT_EQ(source->token_map.empty(), std::string(name) == "B");
  }
}

TEST(Source, TokenizerIsReadWhereThereIsOne) {
  const Result<ModelSource> source = OpenModelSource(testing::TrainerDir());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  ASSERT_TRUE(source->tokenizer);
  EXPECT_EQ(source->tokenizer->vocab_size(), source->config.vocab_size);
}

TEST(Source, TokenizerLargerThanTheModelIsRefused) {
  testing::ModelDir model(testing::TrainerDir());
  model.text()["vocab_size"] = 300;
  model.text()["image_token_id"] = 299;
  model.token_map.pop_back();
  const std::string path = model.Write();
  testing::WriteFileOrDie(
      path + "/tokenizer.json",
      testing::ReadFileOrDie(testing::TrainerDir() + "/tokenizer.json"));
  ExpectHas(OpenModelSource(path).status().message(),
            "the tokenizer has 301 tokens, expected at most 300");
}

TEST(Source, FindTakesReleasedNames) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->Find("embed")->name, "embed.weight");
  EXPECT_EQ(source->Find("layers.0.attn.attn_sink")->name,
            "layers.0.attn.attn_sink");
  EXPECT_EQ(source->Find("layers.0.attn.wq_a.scale")->name,
            "layers.0.attn.wq_a.scale");
  EXPECT_EQ(source->Find("layers.0.nothing"), nullptr);
}

TEST(Source, PathsWithoutAModel) {
  const TestDirectory empty;
  EXPECT_EQ(OpenModelSource(empty / "none").status().code(),
            StatusCode::kNotFound);
  const Status no_config = OpenModelSource(empty.path()).status();
  EXPECT_EQ(no_config.code(), StatusCode::kNotFound);
  ExpectHas(no_config.message(), "config.json: missing, expected a released");
  testing::WriteFileOrDie(empty / "notes.txt", "hello");
  EXPECT_FALSE(OpenModelSource(empty / "notes.txt").ok());
}

TEST(Source, DirectoryWithoutShards) {
  const TestDirectory folder;
  testing::WriteFileOrDie(
      folder / "config.json",
      testing::ReadFileOrDie(testing::GoldenDir("B") + "/config.json"));
  EXPECT_EQ(OpenModelSource(folder.path()).status().code(),
            StatusCode::kNotFound);
}

TEST(Source, OneTensorInTwoShardsIsRefused) {
  testing::ModelDir model(testing::GoldenDir("B"));
  const std::string path = model.Write();
  std::filesystem::rename(path + "/model.safetensors",
                          path + "/model-1.safetensors");
  testing::WriteFileOrDie(
      path + "/model-2.safetensors",
      testing::EncodeSafetensors({{"norm.weight", model.At("norm.weight")}}));
  const Status status = OpenModelSource(path).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  ExpectHas(status.message(), "norm.weight");
}

TEST(Source, EngramTablesOfADirectory) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok());
  const Result<std::vector<engram::TableSource>> tables = EngramTables(*source);
  ASSERT_TRUE(tables.ok()) << tables.status().ToString();
  ASSERT_EQ(tables->size(), 2u);
  const engram::TableSource& table = (*tables)[1];
  EXPECT_EQ(table.codec, TableCodec::kReleasedPair);
  EXPECT_EQ(table.name, "layers.3.engram.embed.weight");
  EXPECT_EQ(table.rows, 3424u);
  EXPECT_EQ(table.width, 64u);
  EXPECT_EQ(table.offset,
            source->index.Find("layers.3.engram.embed.weight")->offset);
  EXPECT_EQ(table.scale_offset,
            source->index.Find("layers.3.engram.embed.scale")->offset);
  EXPECT_TRUE(engram::Store::Open(*tables, {}).ok());
}

TEST(Source, HasherFollowsTheConfiguration) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok());
  const Result<engram::Hasher> hasher = MakeHasher(*source);
  ASSERT_TRUE(hasher.ok()) << hasher.status().ToString();
  const nlohmann::json golden = nlohmann::json::parse(
      testing::ReadFileOrDie(testing::GoldenDir("A") + "/engram.json"));
  EXPECT_EQ(hasher->pad_id(), golden["pad_compressed_id"]);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(hasher->layout().layers[i].multipliers,
              golden["multipliers"][i].get<std::vector<uint64_t>>());
    EXPECT_EQ(hasher->layout().layers[i].offsets,
              golden["offsets"][i].get<std::vector<uint64_t>>());
  }
}

TEST(Source, AModelWithoutEngramHasNoHasher) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("B"));
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(MakeHasher(*source).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(EngramTables(*source)->empty());
}

TEST(Source, EngramKeysWithoutTables) {
  testing::ModelDir model;
  model.tensors.erase("layers.3.engram.embed.weight");
  ExpectHas(OpenError(&model), "missing tensor 'layers.3.engram.embed'");
  testing::ModelDir unscaled;
  unscaled.tensors.erase("layers.3.engram.embed.scale");
  ExpectHas(OpenError(&unscaled),
            "missing tensor 'layers.3.engram.embed.scale'");
}

TEST(Source, EngramTensorsWithoutKeys) {
  testing::ModelDir model(testing::GoldenDir("B"));
  model.tensors["layers.2.engram.wkv.weight"] = model.At("norm.weight");
  ExpectHas(OpenError(&model), "names no Engram in layer 2");
  testing::ModelDir one_less;
  one_less.text()["engram_layer_ids"] = {1};
  one_less.text()["engram_num_embeddings"] = {3144};
  ExpectHas(OpenError(&one_less), "names no Engram in layer 3");
}

TEST(Source, TableShapesMustFitTheKeys) {
  testing::ModelDir rows;
  rows.text()["engram_num_embeddings"] = {3144, 3423};
  ExpectHas(OpenError(&rows),
            "'layers.3.engram.embed.weight': found F8_E4M3 [3424, 64], "
            "expected F8_E4M3 [3423, 64]");
  testing::ModelDir width;
  width.text()["engram_head_dim"] = 32;
  ExpectHas(OpenError(&width),
            "found F8_E4M3 [3144, 64], expected F8_E4M3 [3144, 32]");
  testing::ModelDir scale;
  scale.At("layers.1.engram.embed.scale").shape = {6288, 1};
  ExpectHas(OpenError(&scale),
            "found F8_E8M0 [6288, 1], expected F8_E8M0 [3144, 2]");
}

TEST(Source, RowCountsMustFollowFromThePrimes) {
  testing::ModelDir model;
  model.text()["engram_vocab_size"] = 600;
  ExpectHas(OpenError(&model),
            "rows, expected 3144 as in engram_num_embeddings");
}

TEST(Source, TableTruncatedInsideItsLastRow) {
  testing::ModelDir model;
  testing::TestTensor& table = model.At("layers.3.engram.embed.weight");
  table.bytes.resize(table.bytes.size() - 7);
  EXPECT_EQ(OpenStatus(&model).code(), StatusCode::kCorrupt);
  testing::ModelDir cut;
  const std::string path = cut.Write() + "/model.safetensors";
  const std::string bytes = testing::ReadFileOrDie(path);
  testing::WriteFileOrDie(path, bytes.substr(0, bytes.size() - 7));
  const Status status =
      OpenModelSource(path.substr(0, path.rfind('/'))).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
}

TEST(Source, TableOfZerosIsRefused) {
  testing::ModelDir model;
  std::string& bytes = model.At("layers.1.engram.embed.weight").bytes;
  bytes.assign(bytes.size(), '\0');
  std::string& scales = model.At("layers.1.engram.embed.scale").bytes;
  scales.assign(scales.size(), '\0');
  const Result<ModelSource> source = OpenModelSource(model.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const Result<std::vector<engram::TableSource>> tables = EngramTables(*source);
  ASSERT_TRUE(tables.ok());
  const Status status = engram::Store::Open(*tables, {}).status();
  EXPECT_FALSE(status.ok());
  ExpectHas(status.message(), "layers.1.engram.embed.weight");
}

TEST(Source, TokenMapIsChecked) {
  testing::ModelDir none;
  none.token_map.clear();
  ExpectHas(OpenError(&none), "no tokenizer.json and no token_map.npy");
  testing::ModelDir outside;
  outside.token_map[17] = 394;
  ExpectHas(OpenError(&outside),
            "token 17 has compressed id 394, expected 0..393");
  testing::ModelDir negative;
  negative.token_map[17] = -1;
  ExpectHas(OpenError(&negative), "token 17 has compressed id -1");
  testing::ModelDir shorter;
  shorter.token_map.pop_back();
  ExpectHas(OpenError(&shorter), "expected [512] (vocab_size)");
}

TEST(Source, PadOutsideTheVocabularyIsRefused) {
  testing::ModelDir model;
  model.text()["engram_pad_id"] = 512;
  model.text()["engram_pad_token_id"] = 512;
  ExpectHas(OpenError(&model), "engram_pad_token_id: found 512");
}

TEST(Source, Bf16TablesAreAccepted) {
  testing::ModelDir model;
  testing::TestTensor& table = model.At("layers.3.engram.embed.weight");
  table.dtype = "BF16";
  table.bytes.assign(table.bytes.size() * 2, '\x3f');
  model.tensors.erase("layers.3.engram.embed.scale");
  const Result<ModelSource> source = OpenModelSource(model.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(FindTable(*source, 1)->codec, TableCodec::kBf16);
}

// ---- what info prints ----

TEST(DescribeModel, GoldenA) {
  const Result<ModelInfo> info = InspectModel(testing::GoldenDir("A"), 0, 0);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->format, "safetensors");
  // Tables, then the projection and the two gate weights of both layers.
  EXPECT_EQ(info->parameters_engram,
            (3144u + 3424) * 64 + 2 * (5 * 128 * 6 * 64 + 2 * 4 * 128));
  EXPECT_GT(info->parameters_backbone, info->parameters_active);
  EXPECT_EQ(info->compressed_vocab, 394u);
  EXPECT_FALSE(info->has_tokenizer);
  EXPECT_TRUE(info->unused.empty());
  for (const TensorFacts& tensor : info->tensors) {
    EXPECT_TRUE(tensor.used) << tensor.name;
  }
  ASSERT_EQ(info->engram_tables.size(), 2u);
  EXPECT_EQ(info->engram_tables[0].codec, "released pair");
  EXPECT_EQ(info->engram_tables[0].row_bytes, 66u);
  EXPECT_EQ(info->engram_tables[0].bytes, 3144u * 66);
  EXPECT_EQ(info->memory.context, 1024u);
}

TEST(DescribeModel, UnusedTensorsAreGrouped) {
  testing::ModelDir model;
  const testing::TestTensor extra = model.At("norm.weight");
  for (const char* name :
       {"mtp.0.norm.weight", "mtp.0.attn.wkv.weight", "vision.norm.weight",
        "image_start", "layers.0.ffn.gate.tid2eid"}) {
    model.tensors[name] = extra;
  }
  const Result<ModelInfo> info = InspectModel(model.Write(), 0, 0);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  ASSERT_EQ(info->unused.size(), 4u);
  EXPECT_EQ(info->unused[0].group, "image_*");
  EXPECT_EQ(info->unused[1].group, "mtp.*");
  EXPECT_EQ(info->unused[1].tensors, 2u);
  EXPECT_EQ(info->unused[1].bytes, 2 * extra.bytes.size());
  EXPECT_EQ(info->unused[2].group, "other");
  EXPECT_EQ(info->unused[3].group, "vision.*");
}

TEST(DescribeModel, TokenizerInWords) {
  const Result<ModelInfo> info = InspectModel(testing::TrainerDir(), 0, 0);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_TRUE(info->has_tokenizer);
  ExpectHas(info->tokenizer, "byte-level BPE, 301 tokens, ");
}

TEST(DescribeModel, MissingTensorsAreNamedBeforeLoading) {
  testing::ModelDir model;
  model.tensors.erase("layers.2.attn.wkv.weight");
  ExpectHas(InspectModel(model.Write(), 0, 0).status().message(),
            "missing tensor 'layers.2.attn.wkv'");
}

}  // namespace
}  // namespace ecphory
