#include "ple/gguf_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ple/gguf_testing.h"
#include "ple/testing.h"

namespace ecphory::ple {
namespace {

using Files = std::vector<std::shared_ptr<RandomAccessFile>>;

const TableOptions kEos = {.eos_id = 7};

TestGguf Sidecar() { return SidecarOf(SmallLayout()); }

// A model's file with its table inside.
TestGguf Whole() {
  TestGguf file = ModelOf(SmallLayout());
  file.SetTable(kGgmlBF16, TableCodec::kBf16, 32, SmallLayout().padded_rows());
  return file;
}

// How an error begins that names a file of TestGguf twice.
constexpr char kTwice[] = "m.gguf: m.gguf";

testing::AssertionResult Refuses(const Files& files, StatusCode code,
                                 const std::string& says,
                                 const TableOptions& options = kEos) {
  const auto table = OpenTable(files, options);
  if (table.ok()) return testing::AssertionFailure() << "opened";
  const Status& status = table.status();
  if (status.code() != code ||
      status.message().find(says) == std::string::npos) {
    return testing::AssertionFailure()
           << status.ToString() << ", expected: " << says;
  }
  if (status.message().find(kTwice) != std::string::npos) {
    return testing::AssertionFailure() << status.ToString() << ": named twice";
  }
  return testing::AssertionSuccess();
}

TEST(PleGguf, Sidecar) {
  const auto table = OpenTable(Files{Sidecar().File()}, kEos);
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  const Layout expected = SmallLayout();
  EXPECT_EQ(table->layout.multipliers, expected.multipliers);
  EXPECT_EQ(table->layout.sizes, expected.sizes);
  EXPECT_EQ(table->layout.offsets, expected.offsets);
  EXPECT_EQ(table->layout.ngram_size, 3u);
  EXPECT_EQ(table->layout.heads_per_ngram, 2u);
  EXPECT_EQ(table->layout.eos_id, 7);
  EXPECT_FALSE(table->layer.has_value());
  EXPECT_EQ(table->source.codec, TableCodec::kQ8_0);
  EXPECT_EQ(table->source.rows, expected.padded_rows());
  EXPECT_EQ(table->source.width, 32u);
  EXPECT_GT(table->source.offset, 0u);
  EXPECT_EQ(table->source.file->path(), "side.gguf");
}

TEST(PleGguf, InsideAModel) {
  TestGguf file = Whole();
  file.SetUint("qwen4exp.ple.image_token_id", 55);
  const auto table = OpenTable(Files{file.File()}, {});
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->layer, 1u);
  EXPECT_EQ(table->layout.eos_id, 7);
  EXPECT_EQ(table->layout.image_id, 55);
  EXPECT_EQ(table->source.codec, TableCodec::kBf16);
}

TEST(PleGguf, EveryCodec) {
  const std::pair<GgmlType, TableCodec> types[] = {
      {kGgmlBF16, TableCodec::kBf16},
      {kGgmlQ8_0, TableCodec::kQ8_0},
      {kGgmlQ4_0, TableCodec::kQ4_0},
      {kGgmlQ4_1, TableCodec::kQ4_1}};
  for (const auto& [type, codec] : types) {
    TestGguf file = Sidecar();
    file.SetTable(type, codec, 32, SmallLayout().padded_rows());
    const auto table = OpenTable(Files{file.File()}, kEos);
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    EXPECT_EQ(table->source.codec, codec);
    EXPECT_TRUE(engram::Store::Open({table->source}, {}).ok());
  }
}

TEST(PleGguf, NamesOtherTypes) {
  const std::pair<GgmlType, const char*> types[] = {{kGgmlF32, "type F32"},
                                                    {kGgmlF16, "type F16"},
                                                    {kGgmlMXFP4, "type MXFP4"},
                                                    {kGgmlIQ4NL, "IQ4_NL"}};
  for (const auto& [type, says] : types) {
    TestGguf file = Sidecar();
    file.type = type;
    file.data.resize(file.dims[0] * file.dims[1] * 4);
    EXPECT_TRUE(Refuses({file.File()}, StatusCode::kUnsupported, says));
  }
}

// The table is in whichever part; the model's keys are in the first one.
TEST(PleGguf, FoundByNameInAnyPart) {
  const TestGguf model = ModelOf(SmallLayout());
  TestGguf other;
  other.path = "part 2";
  TestGguf part = Whole();
  part.path = "part 3";
  part.keys.clear();
  for (const Files& files : {Files{model.File(), other.File(), part.File()},
                             Files{part.File(), model.File(), other.File()}}) {
    const auto table = OpenTable(files, {});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    EXPECT_EQ(table->source.file->path(), "part 3");
    EXPECT_EQ(table->layer, 1u);
  }
  EXPECT_TRUE(Refuses({model.File(), other.File()}, StatusCode::kNotFound,
                      "none of the 2 files"));
  EXPECT_TRUE(Refuses({part.File(), other.File()}, StatusCode::kNotFound,
                      "no file has key"));
  EXPECT_TRUE(Refuses({Whole().File(), part.File()}, StatusCode::kCorrupt,
                      "is in m.gguf and in part 3"));
}

// A sidecar takes what it lacks from the model's file beside it.
TEST(PleGguf, SidecarBesideItsModel) {
  TestGguf model = ModelOf(SmallLayout());
  const auto table = OpenTable(Files{model.File(), Sidecar().File()}, {});
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->layer, 1u);
  EXPECT_EQ(table->layout.eos_id, 7);
  model.SetArray("qwen4exp.ple.layer_multipliers", {1, 3, 5});
  EXPECT_TRUE(Refuses({model.File(), Sidecar().File()}, StatusCode::kCorrupt,
                      "not those of side.gguf"));
}

// A sidecar's sizes follow from its arrays: 2 multipliers for 4 heads are right
// for 2-grams alone, and only the model's keys tell that a term is missing.
TEST(PleGguf, ModelTellsThatASidecarsArraysAreShort) {
  const std::string prefix = "qwen4exp.ple.";
  TestGguf side = Sidecar();
  side.SetArray("qwen38-next.ple.layer_multipliers",
                {SmallLayout().multipliers[0], SmallLayout().multipliers[1]});
  EXPECT_TRUE(OpenTable(Files{side.File()}, kEos).ok());
  TestGguf model = ModelOf(SmallLayout());
  for (const char* key :
       {"layer_multipliers", "head_offsets", "head_vocab_sizes"}) {
    model.keys.erase(prefix + key);
  }
  EXPECT_TRUE(Refuses({model.File(), side.File()}, StatusCode::kCorrupt,
                      "ngram_size is 3, the constants make it 2"));
  EXPECT_TRUE(OpenTable(Files{model.File(), Sidecar().File()}, {}).ok());
  model.SetUint(prefix + "heads_per_ngram", 3);
  EXPECT_TRUE(Refuses({model.File(), Sidecar().File()}, StatusCode::kCorrupt,
                      "heads_per_ngram is 3, the constants make it 2"));
}

TEST(PleGguf, RefusesSidecars) {
  const std::string prefix = "qwen38-next.ple.";
  TestGguf file = Sidecar();
  EXPECT_TRUE(
      Refuses({file.File()}, StatusCode::kNotFound, "ple.eos_token_id", {}));
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt, "EOS id is",
                      {.eos_id = INT32_MAX}));
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt, "image token id",
                      {.eos_id = 7, .image_id = -3}));
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt, "EOS id is 7",
                      {.eos_id = 7, .vocab_size = 5}));
  file.SetUint(prefix + "eos_token_id", 8);
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt,
                      "eos_token_id is 8, expected 7"));
  file = Sidecar();
  file.SetUint64(prefix + "total_rows", 5);
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt, "total_rows is 5"));
  file = Sidecar();
  file.SetUint64(prefix + "table_rows", 5);
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt, "table_rows is 5"));
  file = Sidecar();
  file.SetUint(prefix + "row_length", 64);
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt,
                      "expected rows of 64 values"));
  file = Sidecar();
  file.SetArray(prefix + "layer_multipliers", {3});
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt, "1 entries"));
  file = Sidecar();
  file.SetArray(prefix + "head_vocab_sizes", {97, 101, 103});
  EXPECT_TRUE(
      Refuses({file.File()}, StatusCode::kCorrupt, "head_vocab_sizes 3"));
  for (const char* key : {"layer_multipliers", "head_offsets",
                          "head_vocab_sizes", "row_length"}) {
    file = Sidecar();
    file.keys.erase(prefix + key);
    EXPECT_TRUE(Refuses({file.File()}, StatusCode::kNotFound, key));
  }
}

TEST(PleGguf, ATableMayBeLongerThanItsHeadsButNotShorter) {
  TestGguf file = Whole();
  for (const uint64_t rows : {SmallLayout().rows(), uint64_t{1000}}) {
    file.SetTable(kGgmlBF16, TableCodec::kBf16, 32, rows);
    EXPECT_TRUE(OpenTable(Files{file.File()}, {}).ok()) << rows;
  }
  file.SetTable(kGgmlBF16, TableCodec::kBf16, 32, SmallLayout().rows() - 1);
  EXPECT_TRUE(Refuses({file.File()}, StatusCode::kCorrupt,
                      "407 rows, the heads address 408"));
}

struct Damage {
  const char* says;
  StatusCode code;
  std::function<void(TestGguf*)> apply;
};

TEST(PleGguf, RefusesModels) {
  const std::string ple = "qwen4exp.ple.";
  const StatusCode corrupt = StatusCode::kCorrupt;
  const StatusCode unsupported = StatusCode::kUnsupported;
  const Damage damages[] = {
      {"2 layers have a table", unsupported,
       [&](TestGguf* f) {
         f->SetArray(ple + "layers", {1, 2});
       }},
      {"0 layers have a table", unsupported,
       [&](TestGguf* f) { f->SetArray(ple + "layers", {}); }},
      {"layer 4 has a table, the model has 4", corrupt,
       [&](TestGguf* f) { f->SetArray(ple + "layers", {4}); }},
      {"the model has 4", corrupt,
       [&](TestGguf* f) { f->SetArray(ple + "layers", {1ull << 32 | 1}); }},
      {"full attention", unsupported,
       [&](TestGguf* f) { f->SetArray(ple + "layers", {3}); }},
      {"full attention", unsupported,
       [&](TestGguf* f) {
         f->SetBools("qwen4exp.attention.recurrent_layers",
                     {true, false, true, true});
       }},
      {"full attention", unsupported,
       [&](TestGguf* f) { f->SetUint("qwen4exp.full_attention_interval", 2); }},
      {"full_attention_interval is 0", corrupt,
       [&](TestGguf* f) { f->SetUint("qwen4exp.full_attention_interval", 0); }},
      {"no list of 4 flags", corrupt,
       [&](TestGguf* f) {
         f->SetBools("qwen4exp.attention.recurrent_layers", {true, true});
       }},
      {"hyper_connection.count is 1", corrupt,
       [&](TestGguf* f) { f->SetUint("qwen4exp.hyper_connection.count", 1); }},
      {"block_count is 70000", unsupported,
       [&](TestGguf* f) { f->SetUint("qwen4exp.block_count", 70000); }},
      {"conv_kernel is 0", corrupt,
       [&](TestGguf* f) { f->SetUint(ple + "conv_kernel", 0); }},
      {"ngram_size is 1", unsupported,
       [&](TestGguf* f) { f->SetUint(ple + "ngram_size", 1); }},
      {"ngram_size is 9", unsupported,
       [&](TestGguf* f) { f->SetUint(ple + "ngram_size", 9); }},
      {"layer_multipliers has 3 entries, expected 4", corrupt,
       [&](TestGguf* f) { f->SetUint(ple + "ngram_size", 4); }},
      {"0 heads", unsupported,
       [&](TestGguf* f) { f->SetUint(ple + "heads_per_ngram", 0); }},
      {"head_vocab_sizes has 4 entries, expected 6", corrupt,
       [&](TestGguf* f) { f->SetUint(ple + "heads_per_ngram", 3); }},
      {"head_offsets has 3 entries", corrupt,
       [&](TestGguf* f) {
         f->SetArray(ple + "head_offsets", {0, 97, 198});
       }},
      {"head 1 has 0 rows", corrupt,
       [&](TestGguf* f) {
         f->SetArray(ple + "head_vocab_sizes", {97, 0, 103, 107});
       }},
      {"up to 2^31 - 1", unsupported,
       [&](TestGguf* f) {
         f->SetArray(ple + "head_vocab_sizes", {97, 101, 103, 1ull << 31});
       }},
      {"rows of 33 values", unsupported,
       [&](TestGguf* f) {
         f->SetUint("qwen4exp.embedding_length_per_layer_input", 33);
       }},
      {"ple.eos_token_id", StatusCode::kNotFound,
       [&](TestGguf* f) { f->keys.erase(ple + "eos_token_id"); }},
      {"is 8589934592, expected a token id", corrupt,
       [&](TestGguf* f) { f->SetUint64(ple + "image_token_id", 1ull << 33); }},
  };
  for (const Damage& damage : damages) {
    TestGguf file = Whole();
    damage.apply(&file);
    EXPECT_TRUE(Refuses({file.File()}, damage.code, damage.says, {}));
  }
  for (const char* key :
       {"qwen4exp.block_count", "qwen4exp.ple.conv_kernel",
        "qwen4exp.hyper_connection.count", "qwen4exp.ple.heads_per_ngram"}) {
    TestGguf file = Whole();
    file.keys.erase(key);
    EXPECT_TRUE(Refuses({file.File()}, StatusCode::kNotFound, key, {}));
  }
}

}  // namespace
}  // namespace ecphory::ple
