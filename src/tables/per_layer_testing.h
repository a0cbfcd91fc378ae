// Released directories and files of a per-layer table, for the tests of tools.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "ecphory/engram_measure.h"
#include "ecphory/engram_tables.h"
#include "io/test_directory.h"
#include "ple/shards_testing.h"
#include "tables/testing.h"

namespace ecphory {

// A released directory of 408 rows of 32 values, padded to 512, EOS 7.
class PerLayerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(source_);
    SetShards(ple::ShardsOf("F8_E4M3"));
    tables::WriteFile(source_ + "/config.json",
                      R"({"text_config": {"eos_token_id": 7}})");
    options_.input.path = source_;
    options_.output = directory_ / "side.gguf";
    options_.chunk_bytes = 2000;
    options_.threads = 1;
  }

  void SetShards(const ple::Tensors& tensors) {
    ple::WriteShards(shard_, tensors);
  }

  WrittenTables Pack() {
    auto written = PackTables(options_);
    EXPECT_TRUE(written.ok()) << written.status().ToString();
    return written.ok() ? *written : WrittenTables();
  }

  Status PackError() { return PackTables(options_).status(); }

  Result<TablesInfo> Inspect(const std::string& path,
                             std::optional<int32_t> eos = {}) {
    TablesInfoOptions options;
    options.input.path = path;
    options.input.eos_id = eos;
    options.measure = false;
    return InspectTables(options);
  }

  TestDirectory directory_;
  std::string source_ = directory_ / "model";
  std::string shard_ = source_ + "/model.safetensors";
  PackOptions options_;
};

inline void ExpectSays(const Status& status, StatusCode code,
                       const char* says) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_NE(status.message().find(says), std::string::npos)
      << status.ToString() << ", expected: " << says;
}

}  // namespace ecphory
