// Qwen-style per-layer tables looked at and checked.
#include "tables/per_layer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ple/gguf_testing.h"
#include "tables/per_layer_testing.h"

namespace ecphory {
namespace {

namespace fs = std::filesystem;
using tables::WriteFile;

std::string BytesOf(const ple::TestGguf& gguf) {
  const auto file = gguf.File();
  std::vector<uint8_t> bytes(file->size());
  EXPECT_TRUE(file->ReadExact(0, bytes).ok());
  return {bytes.begin(), bytes.end()};
}

VerifyReport Verify(const std::string& path, std::optional<int32_t> eos = {}) {
  VerifyOptions options;
  options.input.path = path;
  options.input.eos_id = eos;
  auto report = VerifyTables(options);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : VerifyReport();
}

// In all four types; the rows behind the heads' may be anything.
TEST_F(PerLayerTest, VerifyCountsFaultsButNotOfPadding) {
  const ple::Layout layout = ple::SmallLayout();
  const std::pair<ple::GgmlType, TableCodec> types[] = {
      {ple::kGgmlBF16, TableCodec::kBf16},
      {ple::kGgmlQ8_0, TableCodec::kQ8_0},
      {ple::kGgmlQ4_0, TableCodec::kQ4_0},
      {ple::kGgmlQ4_1, TableCodec::kQ4_1}};
  for (const auto& [type, codec] : types) {
    ple::TestGguf file = ple::SidecarOf(layout);
    file.SetTable(type, codec, layout.width, layout.padded_rows());
    const size_t row = TableRowBytes(codec, layout.width);
    file.data.replace(3 * row, 2, "\xff\xff");
    file.data.replace(layout.rows() * row, std::string::npos,
                      std::string(104 * row, '\0'));
    const std::string path = directory_ / "side.gguf";
    WriteFile(path, BytesOf(file));
    const VerifyReport report = Verify(path, 7);
    EXPECT_EQ(report.faults, 1u);
    ASSERT_EQ(report.tables.size(), 1u);
    EXPECT_EQ(report.tables[0].rows, layout.rows());
    EXPECT_EQ(report.tables[0].not_finite_rows, 1u);
    EXPECT_EQ(report.tables[0].zero_rows, 0u);
    ASSERT_EQ(report.first_faults.size(), 1u);
    EXPECT_EQ(report.first_faults[0].region, "per_layer");
    EXPECT_EQ(report.first_faults[0].row, 3u);
    EXPECT_EQ(report.bytes, fs::file_size(path));
  }
}

TEST_F(PerLayerTest, AHoleInTheRowsIsAFault) {
  Pack();
  const uint64_t header = fs::file_size(options_.output) - 512 * 34;
  std::fstream file(options_.output,
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(header + 34));
  file << std::string(300 * 34, '\0');
  file.close();
  EXPECT_EQ(Verify(options_.output).tables[0].missing_runs, 1u);
}

TEST_F(PerLayerTest, InfoSaysWhatAModelsTableIs) {
  const ple::Layout layout = ple::SmallLayout();
  ple::TestGguf model = ple::ModelOf(layout);
  model.SetUint("qwen4exp.ple.image_token_id", 55);
  model.SetTable(ple::kGgmlBF16, TableCodec::kBf16, layout.width,
                 layout.padded_rows());
  const std::string path = directory_ / "m.gguf";
  WriteFile(path, BytesOf(model));
  const auto info = Inspect(path);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->kind, "GGUF");
  EXPECT_EQ(info->columns, 4u);
  EXPECT_EQ(info->max_ngram, 3u);
  EXPECT_EQ(info->reads_per_token, 4u);
  ASSERT_TRUE(info->per_layer.has_value());
  EXPECT_EQ(info->per_layer->head_sizes, layout.sizes);
  EXPECT_EQ(info->per_layer->rows, layout.rows());
  EXPECT_EQ(info->per_layer->image_id, 55);
  ASSERT_EQ(info->tables.size(), 1u);
  EXPECT_EQ(info->tables[0].layer, 1u);
  EXPECT_EQ(info->tables[0].codec, "bf16");
  EXPECT_EQ(info->tables[0].rows, 512u);
  EXPECT_EQ(info->tables[0].row_bytes, 64u);
  EXPECT_EQ(Verify(path).faults, 0u);
}

TEST_F(PerLayerTest, EosComesFromTheCallerOrAnotherFile) {
  const ple::Layout layout = ple::SmallLayout();
  const std::string side = directory_ / "side.gguf";
  WriteFile(side, BytesOf(ple::SidecarOf(layout)));
  ExpectSays(Inspect(side).status(), StatusCode::kNotFound, "--eos");
  EXPECT_EQ(Inspect(side, 9)->per_layer->eos_id, 9);
  const std::string model = directory_ / "m.gguf";
  WriteFile(model, BytesOf(ple::ModelOf(layout)));
  ExpectSays(Inspect(model).status(), StatusCode::kNotFound,
             "per_layer_token_embd.weight");
  TablesInfoOptions options;
  options.input.path = side;
  options.input.config = model;
  options.measure = false;
  const auto both = InspectTables(options);
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_EQ(both->tables[0].layer, 1u);
  options.input.eos_id = 9;
  EXPECT_EQ(InspectTables(options).status().code(), StatusCode::kCorrupt);
  options.input.more_tables = {model};
  ExpectSays(InspectTables(options).status(), StatusCode::kInvalidArgument,
             "is one tensor");
}

// Other models have a tensor of that name.
TEST_F(PerLayerTest, RecognisedByKeysNotByTheTensor) {
  ple::TestGguf other;
  other.SetTable(ple::kGgmlBF16, TableCodec::kBf16, 32, 10);
  const std::string path = directory_ / "other.gguf";
  WriteFile(path, BytesOf(other));
  ExpectSays(Inspect(path).status(), StatusCode::kNotFound,
             "ple.layer_multipliers");
  other.keys["general.architecture"] = gguf_bytes::Key(
      "general.architecture", GgufType::kString, gguf_bytes::Str("gemma3n"));
  WriteFile(path, BytesOf(other));
  const Status status = Inspect(path).status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("ple."), std::string::npos)
      << status.ToString();
}

TEST_F(PerLayerTest, ToolsThatCannotSaySo) {
  ExpectSays(Inspect(source_).status(), StatusCode::kUnsupported,
             "'ecphory engram pack'");
  Pack();
  TablesBenchOptions bench;
  bench.input.path = options_.output;
  ExpectSays(BenchTables(bench).status(), StatusCode::kUnsupported,
             "per-layer n-gram table");
  SynthOptions synth;
  synth.output = directory_ / "engram.gguf";
  synth.layout = "mini";
  synth.rows = 1000;
  ASSERT_TRUE(SynthTables(synth).ok());
  ExpectSays(Inspect(synth.output, 7).status(), StatusCode::kInvalidArgument,
             "EOS");
  options_.input.path = synth.output;
  options_.output = directory_ / "rows.bin";
  options_.codec = "q8_0";
  ExpectSays(PackError(), StatusCode::kUnsupported, "expected row264");
}

}  // namespace
}  // namespace ecphory
