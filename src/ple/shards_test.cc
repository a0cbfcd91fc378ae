#include "ple/shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "io/test_directory.h"
#include "ple/gguf_table.h"
#include "ple/pack.h"
#include "ple/shards_testing.h"
#include "tensor/float_codec.h"
#include "tensor/table_codec.h"

namespace ecphory::ple {
namespace {

Result<ShardedTable> Open(const TestDirectory& directory,
                          const Tensors& tensors) {
  WriteShards(directory / "model.safetensors", tensors);
  return ShardedTable::Open(directory.path(), 7);
}

// The value as the shards hold it, from the definition of each type.
float ValueOf(const Tensors& tensors, uint64_t row, size_t i) {
  uint64_t part = 0;
  while (row >= tensors.at(Shard(part)).shape[0]) {
    row -= tensors.at(Shard(part++)).shape[0];
  }
  const TestTensor& shard = tensors.at(Shard(part));
  const size_t at = row * 32 + i;
  if (shard.dtype == "BF16") {
    return BF16ToF32(LoadLE<uint16_t>(shard.data.data() + 2 * at));
  }
  return E4M3ToF32(static_cast<uint8_t>(shard.data[at])) * 0.37f;
}

TEST(PleShards, RowsOfEveryRange) {
  const TestDirectory directory;
  const Tensors tensors = ShardsOf("BF16");
  const auto table = Open(directory, tensors);
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->rows(), 512u);
  EXPECT_EQ(table->layout().width, 32u);
  for (const auto& [first, count] :
       {std::pair<uint64_t, uint64_t>{0, 512}, {99, 2}, {299, 202}, {511, 1}}) {
    std::vector<uint8_t> out(count * 64);
    ASSERT_TRUE(table->EncodeRows(first, count, DType::kBF16, out).ok());
    for (uint64_t row = 0; row < count; ++row) {
      for (size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(BF16ToF32(LoadLE<uint16_t>(out.data() + row * 64 + 2 * i)),
                  ValueOf(tensors, first + row, i));
      }
    }
  }
}

// A sidecar in memory.
Result<std::shared_ptr<RandomAccessFile>> Packed(const ShardedTable& table,
                                                 DType type) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string header,
                           SidecarHeader(table, type));
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t row_bytes, table.RowBytes(type));
  std::vector<uint8_t> bytes(header.begin(), header.end());
  bytes.resize(header.size() + table.rows() * row_bytes);
  ECPHORY_RETURN_IF_ERROR(table.EncodeRows(
      0, table.rows(), type, std::span(bytes).subspan(header.size())));
  return MakeMemoryFile("side.gguf", bytes);
}

// Packs, opens what was written, and holds every row to the shards.
TEST(PleShards, PackedTablesOpenAsSidecars) {
  const std::tuple<const char*, DType, double> cases[] = {
      {"BF16", DType::kBF16, 0},
      {"BF16", DType::kQ8_0, 0.51},
      {"F8_E4M3", DType::kQ8_0, 0.51}};
  for (const auto& [dtype, type, steps] : cases) {
    const TestDirectory directory;
    Tensors tensors = ShardsOf(dtype);
    for (auto& [name, tensor] : tensors) {
      // Within the range of Q8_0's scale.
      if (tensor.dtype != "BF16") continue;
      for (size_t i = 1; i < tensor.data.size(); i += 2)
        tensor.data[i] &= '\x80';
      for (size_t i = 1; i < tensor.data.size(); i += 2)
        tensor.data[i] |= '\x3e';
    }
    const auto table = Open(directory, tensors);
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    const auto file = Packed(*table, type);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const auto opened = OpenTable(std::vector{*file}, {});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_EQ(opened->layout.eos_id, 7);
    auto store = engram::Store::Open({opened->source}, {});
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    std::vector<uint64_t> rows(512);
    for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = i;
    std::vector<float> values(512 * 32);
    ASSERT_TRUE(
        (*store)->Wait((*store)->Submit({0, rows, values.data()})).ok());
    for (uint64_t row = 0; row < 512; ++row) {
      float largest = 0;
      for (size_t i = 0; i < 32; ++i) {
        largest = std::max(largest, std::fabs(ValueOf(tensors, row, i)));
      }
      // Half a Q8_0 code, and the rounding of the decoded value to bf16.
      const double bound = steps * largest / 127 + (steps > 0) * largest / 256;
      for (size_t i = 0; i < 32; ++i) {
        ASSERT_NEAR(values[row * 32 + i], ValueOf(tensors, row, i), bound);
      }
    }
  }
}

TEST(PleShards, PackingRefusesTypes) {
  const TestDirectory directory;
  const auto table = Open(directory, ShardsOf("F8_E4M3"));
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  const Status bf16 = Packed(*table, DType::kBF16).status();
  EXPECT_EQ(bf16.code(), StatusCode::kUnsupported) << bf16.ToString();
  const Status q4 = Packed(*table, DType::kQ4_0).status();
  EXPECT_EQ(q4.code(), StatusCode::kUnsupported) << q4.ToString();
}

TEST(PleShards, DirectoriesAreRecognised) {
  const TestDirectory directory;
  EXPECT_FALSE(*HasShards(directory / "nowhere"));
  Tensors tensors = ShardsOf("BF16");
  const std::string path = directory / "model.safetensors";
  WriteShards(path, tensors);
  EXPECT_TRUE(*HasShards(directory.path()));
  EXPECT_FALSE(*HasShards(path));
  WriteShards(path, {{"other.weight", Integers({1})}});
  EXPECT_FALSE(*HasShards(directory.path()));
  std::filesystem::resize_file(path, 4);
  EXPECT_FALSE(HasShards(directory.path()).ok());
}

TEST(PleShards, AgreeWithTheModelsConfiguration) {
  const auto open = [](const std::string& config) {
    const TestDirectory directory;
    std::ofstream(directory / "config.json") << config;
    return Open(directory, ShardsOf("BF16")).status();
  };
  EXPECT_TRUE(open("{}").ok());
  EXPECT_TRUE(open(R"({"eos_token_id": 9, "text_config": {"ngram_size": 3,
      "heads_per_ngram": 2, "ple_embed_dim": 128, "ple_layer_ids": [2],
      "eos_token_id": 7}})")
                  .ok());
  EXPECT_TRUE(open(R"({"eos_token_id": [9, 7]})").ok());
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"text_config": {"ngram_size": 4}})", "ngram_size is 4"},
      {R"({"heads_per_ngram": 8})", "heads_per_ngram is 8"},
      {R"({"ple_embed_dim": 2560})", "ple_embed_dim is 2560"},
      {R"({"ple_layer_ids": [2, 5]})", "2 layers have a table"},
      {R"({"ple_layer_ids": []})", "0 layers have a table"},
      {R"({"ngram_size": "3"})", "ngram_size"},
      {R"({"eos_token_id": 9})", "eos_token_id is 9, expected 7"},
      {"{", "config.json"}};
  for (const auto& [config, says] : wrong) {
    const Status status = open(config);
    EXPECT_FALSE(status.ok()) << config;
    EXPECT_NE(status.message().find(says), std::string::npos)
        << status.ToString();
    EXPECT_NE(status.message().find("config.json"), std::string::npos);
  }
}

struct Damage {
  const char* dtype;
  const char* says;
  StatusCode code;
  std::function<void(Tensors*)> apply;
};

TEST(PleShards, RefusesDirectories) {
  const StatusCode corrupt = StatusCode::kCorrupt;
  const StatusCode missing = StatusCode::kNotFound;
  const StatusCode unsupported = StatusCode::kUnsupported;
  const std::string scale = kPrefix + "ngram_embedding.weight_scale";
  const auto set_scale = [&](Tensors* t, float value) {
    TestTensor& tensor = (*t)[scale];
    tensor = {"F32", {}, ""};
    AppendLE(value, &tensor.data);
  };
  const Damage damages[] = {
      {"BF16", "shard_1.weight is missing", missing,
       [](Tensors* t) { t->erase(Shard(1)); }},
      {"BF16", "shard_0.weight is missing", missing,
       [](Tensors* t) {
         for (uint64_t i = 0; i < 4; ++i) t->erase(Shard(i));
       }},
      {"BF16", "3 shards have 500 rows, expected 512", corrupt,
       [](Tensors* t) { t->erase(Shard(3)); }},
      {"BF16", "is also tensor", corrupt,
       [](Tensors* t) {
         (*t)[kPrefix + "ngram_embedding.shard_01.weight"] = (*t)[Shard(3)];
       }},
      {"BF16", "expected that of one layer", unsupported,
       [](Tensors* t) {
         (*t)
             ["model.layers.2.ple.ple_embedding.ngram_embedding.shard_0."
              "weight"] = (*t)[Shard(3)];
       }},
      {"BF16", "type F8_E4M3, shard 0 is BF16", corrupt,
       [](Tensors* t) {
         (*t)[Shard(2)].dtype = "F8_E4M3";
         (*t)[Shard(2)].data.resize(200 * 32);
       }},
      {"BF16", "type U8, expected BF16 or F8_E4M3", unsupported,
       [](Tensors* t) {
         (*t)[Shard(0)].dtype = "U8";
         (*t)[Shard(0)].data.resize(100 * 32);
       }},
      {"BF16", "shape [100, 64], shard 0 is [100, 32]", corrupt,
       [](Tensors* t) {
         (*t)[Shard(1)].shape = {100, 64};
       }},
      {"BF16", "a scale of BF16 shards", unsupported,
       [&](Tensors* t) { set_scale(t, 1.0f); }},
      {"F8_E4M3", "F8_E4M3 shards without tensor", missing,
       [&](Tensors* t) { t->erase(scale); }},
      {"F8_E4M3", "expected one F32 or BF16 value", corrupt,
       [&](Tensors* t) {
         (*t)[scale] = {"F32", {2}, std::string(8, '\x3f')};
       }},
      {"F8_E4M3", "expected one F32 or BF16 value", corrupt,
       [&](Tensors* t) {
         (*t)[scale] = {"F16", {1}, std::string(2, '\x3f')};
       }},
      {"F8_E4M3", "the scale is 0", corrupt,
       [&](Tensors* t) { set_scale(t, 0.0f); }},
      {"F8_E4M3", "the scale is inf", corrupt,
       [&](Tensors* t) { set_scale(t, HUGE_VALF); }},
      {"F8_E4M3", "the scale is -1", corrupt,
       [&](Tensors* t) { set_scale(t, -1.0f); }},
      {"BF16", "layer_multipliers' is missing", missing,
       [](Tensors* t) { t->erase(kPrefix + "layer_multipliers"); }},
      {"BF16", "expected none below 0", corrupt,
       [](Tensors* t) {
         (*t)[kPrefix + "layer_multipliers"] = Integers({1, 3, ~uint64_t{0}});
       }},
      {"BF16", "1 multipliers", corrupt,
       [](Tensors* t) { (*t)[kPrefix + "layer_multipliers"] = Integers({1}); }},
      {"BF16", "expected at most 256 I64", corrupt,
       [](Tensors* t) { (*t)[kPrefix + "ngram_heads_offsets"].dtype = "F64"; }},
      {"BF16", "head 1 begins at row 98", corrupt,
       [](Tensors* t) {
         (*t)[kPrefix + "ngram_heads_offsets"] = Integers({0, 98, 198, 301});
       }},
      {"BF16", "rows, expected 640", corrupt,
       [](Tensors* t) {
         (*t)[kPrefix + "ngram_heads_vocab_sizes"] =
             Integers({97, 101, 103, 250});
       }},
  };
  for (const Damage& damage : damages) {
    const TestDirectory directory;
    Tensors tensors = ShardsOf(damage.dtype);
    damage.apply(&tensors);
    const auto table = Open(directory, tensors);
    ASSERT_FALSE(table.ok()) << damage.says;
    EXPECT_EQ(table.status().code(), damage.code) << table.status().ToString();
    EXPECT_NE(table.status().message().find(damage.says), std::string::npos)
        << table.status().ToString() << ", expected: " << damage.says;
  }
}

// The row's own number in its own shard, so that a hex editor finds it.
TEST(PleShards, NamesARowThatIsNoNumber) {
  for (const char bad : {'\x7f', '\xff'}) {
    const TestDirectory directory;
    Tensors tensors = ShardsOf("F8_E4M3");
    tensors[Shard(2)].data[5 * 32 + 31] = bad;
    const auto table = Open(directory, tensors);
    ASSERT_TRUE(table.ok());
    std::vector<uint8_t> out(512 * 34);
    const Status status = table->EncodeRows(0, 512, DType::kQ8_0, out);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.message().find("shard_2.weight', row 5"),
              std::string::npos)
        << status.ToString();
  }
  const TestDirectory directory;
  Tensors tensors = ShardsOf("BF16");
  tensors[Shard(1)].data[1] = '\x7f';  // 2^126 and more: none of Q8_0's
  const auto table = Open(directory, tensors);
  std::vector<uint8_t> out(34);
  EXPECT_EQ(table->EncodeRows(100, 1, DType::kQ8_0, out).code(),
            StatusCode::kCorrupt);
}

TEST(PleShards, AFileThatGotShorterIsAShortRead) {
  const TestDirectory directory;
  const auto table = Open(directory, ShardsOf("BF16"));
  ASSERT_TRUE(table.ok());
  const std::string path = directory / "model.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  std::vector<uint8_t> out(512 * 64);
  const Status status = table->EncodeRows(0, 512, DType::kBF16, out);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
}

}  // namespace
}  // namespace ecphory::ple
