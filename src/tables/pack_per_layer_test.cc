// Shards of a Qwen-style per-layer table packed into a sidecar.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "ecphory/engram_tables.h"
#include "io/file_size_limit.h"
#include "ple/pack.h"
#include "tables/per_layer_testing.h"

namespace ecphory {
namespace {

namespace fs = std::filesystem;
using tables::FlipByte;
using tables::ReadFile;
using tables::RunsUntilKilled;
using tables::WriteFile;

class PackPerLayerTest : public PerLayerTest {
 protected:
  // What one call after another would write.
  std::string Expected(DType type) {
    const auto table = ple::ShardedTable::Open(source_, 7);
    EXPECT_TRUE(table.ok()) << table.status().ToString();
    std::vector<uint8_t> rows(table->rows() * *table->RowBytes(type));
    EXPECT_TRUE(table->EncodeRows(0, table->rows(), type, rows).ok());
    return *ple::SidecarHeader(*table, type) +
           std::string(rows.begin(), rows.end());
  }
};

TEST_F(PackPerLayerTest, ShardsBecomeASidecar) {
  const WrittenTables written = Pack();
  EXPECT_TRUE(written.verified);
  EXPECT_EQ(written.codec, "Q8_0");
  EXPECT_EQ(written.width, 32u);
  ASSERT_EQ(written.tables.size(), 1u);
  EXPECT_FALSE(written.tables[0].layer.has_value());
  EXPECT_EQ(written.tables[0].rows, 512u);
  EXPECT_EQ(written.tables[0].row_bytes, 34u);
  EXPECT_TRUE(ReadFile(options_.output) == Expected(DType::kQ8_0));
  const auto info = Inspect(options_.output);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->per_layer->eos_id, 7);
}

TEST_F(PackPerLayerTest, Bf16FromBf16Only) {
  options_.codec = "bf16";
  ExpectSays(PackError(), StatusCode::kUnsupported, "cannot be packed as BF16");
  SetShards(ple::ShardsOf("BF16"));
  EXPECT_EQ(Pack().codec, "bf16");
  EXPECT_TRUE(ReadFile(options_.output) == Expected(DType::kBF16));
}

TEST_F(PackPerLayerTest, EosIsTheConfigurationsOrTheCallers) {
  options_.input.eos_id = 8;
  ExpectSays(PackError(), StatusCode::kInvalidArgument, "is 7, expected 8");
  WriteFile(source_ + "/config.json", R"({"eos_token_id": [7, 8]})");
  EXPECT_TRUE(PackTables(options_).ok());
  EXPECT_EQ(Inspect(options_.output)->per_layer->eos_id, 8);
  options_.overwrite = true;
  options_.input.eos_id = {};
  ExpectSays(PackError(), StatusCode::kNotFound, "--eos");
  fs::remove(source_ + "/config.json");
  ExpectSays(PackError(), StatusCode::kNotFound, "--eos");
}

TEST_F(PackPerLayerTest, KilledAnywhereGoesOnToTheSameFile) {
  const std::string expected = Expected(DType::kQ8_0);
  int runs = 0;
  for (bool killed = true; killed; ++runs) {
    ASSERT_LT(runs, 100);
    int calls = 0;
    PackOptions dying = options_;
    dying.progress = [&](const std::string&, uint64_t, uint64_t) {
      if (calls++ == runs) ::raise(SIGKILL);
      return true;
    };
    killed = RunsUntilKilled([&] { return PackTables(dying).ok(); });
    if (killed) {
      EXPECT_FALSE(fs::exists(options_.output));
      Pack();
    }
    EXPECT_TRUE(ReadFile(options_.output) == expected);
    EXPECT_FALSE(fs::exists(options_.output + ".partial.journal"));
    fs::remove(options_.output);
  }
  EXPECT_GT(runs, 10);
}

TEST_F(PackPerLayerTest, WhatWasWrittenIsNotWrittenAgain) {
  {
    const FileSizeLimit limit(9000);
    EXPECT_EQ(PackError().code(), StatusCode::kResourceExhausted);
  }
  PackOptions other = options_;
  other.input.eos_id = 9;
  WriteFile(source_ + "/config.json", "{}");
  ExpectSays(PackTables(other).status(), StatusCode::kInvalidArgument,
             "another source");
  other.input.eos_id = 7;
  const auto written = PackTables(other);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_GT(written->resumed_bytes, 4000u);
  EXPECT_TRUE(ReadFile(options_.output) == Expected(DType::kQ8_0));
}

TEST_F(PackPerLayerTest, RefusesWhatItCannotPack) {
  const std::string before = ReadFile(shard_);
  options_.overwrite = true;
  options_.container = TableContainer::kGguf;
  WriteFile(source_ + "/tokenizer.json", "{}");
  for (const std::string& input :
       {shard_, source_ + "/config.json", source_ + "/tokenizer.json"}) {
    options_.output = input;
    ExpectSays(PackError(), StatusCode::kInvalidArgument, "is an input");
  }
  EXPECT_TRUE(ReadFile(shard_) == before);
  options_.container = TableContainer::kByName;
  options_.output = directory_ / "rows.bin";
  ExpectSays(PackError(), StatusCode::kUnsupported, "ends in .gguf");
  options_.output = directory_ / "side.gguf";
  options_.codec = "row264";
  ExpectSays(PackError(), StatusCode::kUnsupported, "expected bf16 or q8_0");

  options_.codec = "";
  Pack();
  options_.input.path = options_.output;
  options_.output = directory_ / "again.gguf";
  ExpectSays(PackError(), StatusCode::kUnsupported, "packed already");
}

TEST_F(PackPerLayerTest, DamagedSourceRowIsNamed) {
  ple::Tensors tensors = ple::ShardsOf("F8_E4M3");
  tensors[ple::Shard(2)].data[5 * 32 + 31] = '\x7f';
  SetShards(tensors);
  ExpectSays(PackError(), StatusCode::kCorrupt, "shard_2.weight', row 5");
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(PackPerLayerTest, ManifestIsTheOneVerifyWrites) {
  options_.chunk_bytes = 0;
  options_.write_manifest = directory_ / "packed.xxh";
  Pack();
  VerifyOptions verify;
  verify.input.path = options_.output;
  verify.write_manifest = directory_ / "verified.xxh";
  const auto report = VerifyTables(verify);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->faults, 0u);
  EXPECT_EQ(ReadFile(options_.write_manifest), ReadFile(verify.write_manifest));

  FlipByte(options_.output, fs::file_size(options_.output) - 1, 1);
  verify.manifest = verify.write_manifest;
  verify.write_manifest = "";
  const auto damaged = VerifyTables(verify);
  ASSERT_TRUE(damaged.ok());
  ASSERT_EQ(damaged->faults, 1u);
  EXPECT_EQ(damaged->first_faults[0].region, "per_layer_padding");
}

}  // namespace
}  // namespace ecphory
