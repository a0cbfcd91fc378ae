#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "ecphory/engram_tables.h"
#include "engram/source.h"
#include "format/gguf_parts_testing.h"
#include "io/file_size_limit.h"
#include "io/test_directory.h"
#include "tables/testing.h"

namespace ecphory {
namespace {

namespace fs = std::filesystem;
using tables::FlipByte;
using tables::ReadFile;
using tables::RunsUntilKilled;
using tables::WriteFile;

constexpr uint64_t kChunk = 200'000;

// A released directory of synthetic tables, and the same rows packed.
class PackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(source_);
    WriteFile(source_ + "/config.json", R"({"engram_layer_ids": [1, 4],
      "engram_max_ngram_size": 4, "engram_n_heads": 4, "engram_head_dim": 64,
      "engram_vocab_size": 1666, "engram_compressed_vocab_size": 6950,
      "engram_num_embeddings": [)" + Rows() +
                                            R"(],
      "engram_pad_token_id": 2, "vocab_size": 6950})");
    WriteTokenMap();
    Synth(source_ + "/model.safetensors", "pair");
    Synth(directory_ / "expected.bin", "row264");
    Synth(directory_ / "expected.gguf", "row264");
    options_.input.path = source_;
    options_.output = directory_ / "out.bin";
    options_.chunk_bytes = kChunk;
    options_.threads = 1;
  }

  // Of the layout; synth knows them.
  std::string Rows() {
    const WrittenTables t = Synth(directory_ / "probe.bin", "row264");
    return std::to_string(t.tables[0].rows) + "," +
           std::to_string(t.tables[1].rows);
  }

  WrittenTables Synth(const std::string& path, const std::string& codec) {
    SynthOptions options;
    options.output = path;
    options.layout = "mini";
    options.vocab_size = 1666;
    options.codec = codec;
    options.overwrite = true;
    auto written = SynthTables(options);
    EXPECT_TRUE(written.ok()) << written.status().ToString();
    return std::move(written).value();
  }

  // Every id stands for itself, as in what synth writes.
  void WriteTokenMap() {
    std::string header =
        "{'descr': '<i4', 'fortran_order': False, 'shape': (6950,), }";
    header.resize(117, ' ');
    header += "\n";
    std::string npy("\x93NUMPY\x01\x00", 8);
    npy += static_cast<char>(header.size());
    npy += '\0';
    npy += header;
    for (int32_t id = 0; id < 6950; ++id) {
      npy.append(reinterpret_cast<const char*>(&id), 4);
    }
    WriteFile(source_ + "/token_map.npy", npy);
  }

  void ExpectSame(const std::string& a, const std::string& b) {
    EXPECT_TRUE(ReadFile(a) == ReadFile(b)) << a << " differs from " << b;
  }

  TestDirectory directory_;
  std::string source_ = directory_ / "model";
  PackOptions options_;
};

TEST_F(PackTest, PairBecomesTheRowsItsPartsMake) {
  const auto written = PackTables(options_);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_TRUE(written->verified);
  EXPECT_EQ(written->tables[1].row_bytes, 66u);
  ExpectSame(options_.output, directory_ / "expected.bin");
}

TEST_F(PackTest, GgufOpensAsAMemoryOfItsOwn) {
  options_.output = directory_ / "out.gguf";
  ASSERT_TRUE(PackTables(options_).ok());
  ExpectSame(options_.output, directory_ / "expected.gguf");
  const auto source = engram::OpenSource(options_.output, {});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const auto hasher = engram::MakeHasher(*source);
  ASSERT_TRUE(hasher.ok()) << hasher.status().ToString();
  EXPECT_EQ(hasher->token_map().size(), 6950u);
  VerifyOptions verify;
  verify.input.path = options_.output;
  const auto report = VerifyTables(verify);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->faults, 0u);
}

TEST_F(PackTest, TheImageTokenStaysKnown) {
  const std::string path = source_ + "/config.json";
  std::string config = ReadFile(path);
  config.insert(1, "\"image_token_id\": 44, ");
  WriteFile(path, config);
  options_.output = directory_ / "out.gguf";
  ASSERT_TRUE(PackTables(options_).ok());
  EXPECT_EQ(engram::OpenSource(options_.output, {})->image_token_id, 44);
  options_.input.path = options_.output;
  options_.output = directory_ / "again.gguf";
  ASSERT_TRUE(PackTables(options_).ok());
  EXPECT_EQ(engram::OpenSource(options_.output, {})->image_token_id, 44);
}

TEST_F(PackTest, LeavesFilesOfItsSourceAlone) {
  const std::string first =
      gguf_bytes::WriteParts(directory_ / "expected.gguf", directory_ / "m", 3);
  const std::string last = gguf_bytes::PartPath(directory_ / "m", 2, 3);
  options_.overwrite = true;
  for (const auto& [source, output] :
       {std::pair{source_, source_ + "/config.json"},
        {source_, source_ + "/model.safetensors"},
        {first, first},
        {first, gguf_bytes::PartPath(directory_ / "m", 1, 3)},
        {first, last}}) {
    SCOPED_TRACE(output);
    options_.input.path = source;
    options_.output = output;
    const std::string before = ReadFile(output);
    const Status status = PackTables(options_).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("is an input"), std::string::npos)
        << status.ToString();
    EXPECT_TRUE(ReadFile(output) == before);
  }
  // What it made beside them before is its own.
  options_.input.path = source_;
  options_.output = source_ + "/memory.gguf";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(PackTables(options_).ok());
}

TEST_F(PackTest, GgufAndRawRowsBecomeEachOther) {
  options_.input.path = directory_ / "expected.gguf";
  ASSERT_TRUE(PackTables(options_).ok());
  ExpectSame(options_.output, directory_ / "expected.bin");
  options_.input.path = directory_ / "expected.bin";
  options_.input.config = directory_ / "expected.gguf";
  options_.output = directory_ / "again.gguf";
  const auto again = PackTables(options_);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  ExpectSame(options_.output, directory_ / "expected.gguf");
}

TEST_F(PackTest, PartsInFilesOfTheirOwn) {
  options_.input = {};
  options_.input.config = source_;
  const std::string shard = source_ + "/model.safetensors";
  options_.tables = options_.scales = {shard, shard};
  ASSERT_TRUE(PackTables(options_).ok());
  ExpectSame(options_.output, directory_ / "expected.bin");

  // As plain bytes: codes and scales of each packed row taken apart.
  const std::string rows = ReadFile(directory_ / "expected.bin");
  const uint64_t first = std::stoull(Rows());
  std::string codes, scales;
  std::vector<std::string> files;
  for (uint64_t row = 0; row < rows.size() / 66; ++row) {
    codes += rows.substr(row * 66, 64);
    scales += rows.substr(row * 66 + 64, 2);
  }
  WriteFile(directory_ / "c1", codes.substr(0, first * 64));
  WriteFile(directory_ / "c4", codes.substr(first * 64));
  WriteFile(directory_ / "s1", scales.substr(0, first * 2));
  WriteFile(directory_ / "s4", scales.substr(first * 2));
  options_.tables = {directory_ / "c1", directory_ / "c4"};
  options_.scales = {directory_ / "s1", directory_ / "s4"};
  options_.output = directory_ / "plain.bin";
  const auto plain = PackTables(options_);
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  ExpectSame(options_.output, directory_ / "expected.bin");

  options_.scales.pop_back();
  EXPECT_EQ(PackTables(options_).status().code(), StatusCode::kInvalidArgument);
  options_.scales = {directory_ / "s4", directory_ / "s1"};
  options_.output = directory_ / "wrong.bin";
  EXPECT_EQ(PackTables(options_).status().code(), StatusCode::kCorrupt);
}

TEST_F(PackTest, ManifestIsTheOneVerifyWrites) {
  options_.output = directory_ / "out.gguf";
  options_.write_manifest = directory_ / "packed.xxh";
  options_.chunk_bytes = 0;
  ASSERT_TRUE(PackTables(options_).ok());
  VerifyOptions verify;
  verify.input.path = options_.output;
  verify.write_manifest = directory_ / "verified.xxh";
  ASSERT_TRUE(VerifyTables(verify).ok());
  ExpectSame(directory_ / "packed.xxh", directory_ / "verified.xxh");
}

TEST_F(PackTest, KilledAnywhereGoesOnToTheSameFile) {
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
      ASSERT_TRUE(PackTables(options_).ok());
    }
    ExpectSame(options_.output, directory_ / "expected.bin");
    EXPECT_FALSE(fs::exists(options_.output + ".partial.journal"));
    fs::remove(options_.output);
  }
  EXPECT_GT(runs, 10);
}

TEST_F(PackTest, SourceThatChangedIsNotGoneOnWith) {
  PackOptions cancelled = options_;
  cancelled.progress = [](const std::string&, uint64_t done, uint64_t) {
    return done < 1'000'000;
  };
  EXPECT_EQ(PackTables(cancelled).status().code(), StatusCode::kCancelled);
  const std::string shard = source_ + "/model.safetensors";
  FlipByte(shard, fs::file_size(shard) - 1, 1);
  const Status status = PackTables(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("another source"), std::string::npos);
}

TEST_F(PackTest, DamagedSourceRowIsNamed) {
  const std::string shard = source_ + "/model.safetensors";
  const std::string bytes = ReadFile(shard);
  // Row 3 of the first table: the data begin behind the header.
  uint64_t header;
  std::memcpy(&header, bytes.data(), 8);
  std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(8 + header + 3 * 64 + 9));
  file.put('\x7f');
  file.close();
  const Status status = PackTables(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("row 3 at offset"), std::string::npos)
      << status.message();
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(PackTest, OutputsOntoInputsAreRefused) {
  options_.output = source_ + "/model.safetensors";
  options_.overwrite = true;
  const std::string before = ReadFile(options_.output);
  EXPECT_EQ(PackTables(options_).status().code(), StatusCode::kInvalidArgument);
  fs::create_symlink(options_.output, directory_ / "link");
  options_.output = directory_ / "link";
  EXPECT_EQ(PackTables(options_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(source_ + "/model.safetensors"), before);
}

TEST_F(PackTest, ManifestOntoInputOrOutputIsRefused) {
  const size_t files = directory_.List().size();
  for (const std::string& name :
       {options_.output, options_.output + ".partial", source_ + "/config.json",
        source_ + "/model.safetensors", directory_ / "missing/sums.xxh"}) {
    options_.write_manifest = name;
    EXPECT_FALSE(PackTables(options_).ok()) << name;
    EXPECT_EQ(directory_.List().size(), files) << name;
  }
}

TEST_F(PackTest, FullDiskLosesNothing) {
  {
    const FileSizeLimit limit(900'000);
    EXPECT_EQ(PackTables(options_).status().code(),
              StatusCode::kResourceExhausted);
  }
  const auto written = PackTables(options_);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_GT(written->resumed_bytes, 500'000u);
  ExpectSame(options_.output, directory_ / "expected.bin");
}

TEST_F(PackTest, TwoAtOnceDoNotMeet) {
  PackOptions first = options_;
  Status second;
  bool tried = false;
  first.progress = [&](const std::string&, uint64_t, uint64_t) {
    if (!std::exchange(tried, true)) second = PackTables(options_).status();
    return true;
  };
  ASSERT_TRUE(PackTables(first).ok());
  EXPECT_EQ(second.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(second.message().find("another process"), std::string::npos);
  ExpectSame(options_.output, directory_ / "expected.bin");
}

}  // namespace
}  // namespace ecphory
