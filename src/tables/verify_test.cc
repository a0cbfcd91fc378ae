// What is damaged in a file of tables, and what verify says about it.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "ecphory/engram_tables.h"
#include "format/gguf_parts_testing.h"
#include "io/test_directory.h"
#include "tables/testing.h"

namespace ecphory {
namespace {

using tables::FlipByte;
using tables::ReadFile;
using tables::RunsUntilKilled;

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override { tables_ = Make("tables.gguf", "row264"); }

  WrittenTables Make(const std::string& name, const std::string& codec) {
    SynthOptions options;
    options.output = directory_ / name;
    options.layout = "mini";
    options.rows = 20000;
    options.codec = codec;
    auto written = SynthTables(options);
    EXPECT_TRUE(written.ok()) << written.status().ToString();
    return std::move(written).value();
  }

  VerifyReport Verify(const VerifyOptions& options) {
    auto report = VerifyTables(options);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? *report : VerifyReport();
  }
  VerifyReport Verify() { return Verify(Options()); }

  VerifyOptions Options() const {
    VerifyOptions options;
    options.input.path = directory_ / "tables.gguf";
    return options;
  }

  // Byte `byte` of a row in the file.
  uint64_t At(size_t table, uint64_t row, uint64_t byte) const {
    return tables_.tables[table].offset + row * 66 + byte;
  }
  void Write(uint64_t offset, const std::string& bytes) {
    std::fstream file(tables_.output,
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
  }

  TestDirectory directory_;
  WrittenTables tables_;
};

TEST_F(VerifyTest, GoodTablesHaveNoFault) {
  const VerifyReport report = Verify();
  EXPECT_EQ(report.faults, 0u);
  ASSERT_EQ(report.tables.size(), 2u);
  EXPECT_EQ(report.tables[1].rows, tables_.tables[1].rows);
  EXPECT_GT(report.bytes, tables_.tables[0].rows * 66);
  EXPECT_TRUE(report.manifest_checked.empty());
}

// The second part has one table, the third the other.
TEST_F(VerifyTest, TablesInPartsAreFound) {
  VerifyOptions options;
  options.input.path = gguf_bytes::WriteParts(directory_ / "tables.gguf",
                                              directory_ / "parts", 3);
  options.write_manifest = directory_ / "manifest.json";
  const VerifyReport clean = Verify(options);
  EXPECT_EQ(clean.faults, 0u);
  ASSERT_EQ(clean.tables.size(), tables_.tables.size());
  for (size_t i = 0; i < clean.tables.size(); ++i) {
    EXPECT_EQ(clean.tables[i].rows, Verify().tables[i].rows);
  }
  options.manifest = options.write_manifest;
  options.write_manifest.clear();
  EXPECT_EQ(Verify(options).faults, 0u);
  FlipByte(directory_ / "parts-00003-of-00003.gguf", 4000, 1);
  EXPECT_NE(Verify(options).faults, 0u);
}

TEST_F(VerifyTest, EveryFaultIsCountedAndNamed) {
  Write(At(0, 17, 3), "\x7f");
  Write(At(0, 18, 65), "\xff");
  Write(At(1, 4000, 0), "\xff");
  Write(At(1, 4001, 0), "\x7e");   // the largest code
  Write(At(1, 4001, 64), "\xfe");  // under the largest scale
  Write(At(1, 9000, 0), std::string(200 * 66, '\0'));
  const VerifyReport report = Verify();
  EXPECT_EQ(report.faults, 5u);
  EXPECT_EQ(report.tables[0].nan_rows, 1u);
  EXPECT_EQ(report.tables[0].bad_scale_rows, 1u);
  EXPECT_EQ(report.tables[1].nan_rows, 1u);
  EXPECT_EQ(report.tables[1].not_finite_rows, 1u);
  EXPECT_EQ(report.tables[1].zero_rows, 200u);
  EXPECT_EQ(report.tables[1].first_zero_row, 9000u);
  EXPECT_EQ(report.tables[1].missing_runs, 1u);
  ASSERT_EQ(report.first_faults.size(), 5u);
  const TableFault& fault = report.first_faults[0];
  EXPECT_EQ(fault.what, "NaN code");
  EXPECT_EQ(fault.region, "layer_1");
  EXPECT_EQ(fault.row, 17u);
  EXPECT_EQ(fault.offset, At(0, 17, 0));
  EXPECT_EQ(report.first_faults[4].rows, 200u);
  EXPECT_EQ(report.first_faults[4].row, 9000u);
}

TEST_F(VerifyTest, TruncatedFileIsRefusedAtOnce) {
  std::filesystem::resize_file(tables_.output, tables_.bytes / 2);
  EXPECT_EQ(VerifyTables(Options()).status().code(), StatusCode::kCorrupt);
}

TEST_F(VerifyTest, ManifestFindsOneFlippedBitAnywhere) {
  VerifyOptions write = Options();
  write.write_manifest = directory_ / "tables.gguf.xxh";
  const VerifyReport clean = Verify(write);
  EXPECT_EQ(clean.manifest_written, write.write_manifest);
  EXPECT_FALSE(std::filesystem::exists(write.write_manifest + ".state"));
  EXPECT_EQ(Verify().chunks_checked, 3u);  // found beside the file

  for (const uint64_t offset : {At(0, 5, 5), At(1, 77, 60)}) {
    FlipByte(tables_.output, offset, 1);
    const VerifyReport report = Verify();
    EXPECT_EQ(report.faults, 1u) << offset;
    ASSERT_EQ(report.first_faults.size(), 1u);
    EXPECT_EQ(report.first_faults[0].what, "checksum differs");
    EXPECT_NE(report.whole_digest, clean.whole_digest);
    FlipByte(tables_.output, offset, 1);
  }
  EXPECT_EQ(Verify().faults, 0u);
}

TEST_F(VerifyTest, WrongManifestsAreTold) {
  VerifyOptions write = Options();
  write.write_manifest = directory_ / "a.xxh";
  Verify(write);
  SynthOptions other;
  other.output = directory_ / "other.gguf";
  other.layout = "mini";
  other.rows = 24000;
  ASSERT_TRUE(SynthTables(other).ok());
  VerifyOptions options;
  options.input.path = other.output;
  options.manifest = directory_ / "a.xxh";
  const VerifyReport report = Verify(options);
  EXPECT_EQ(report.faults, 3u);
  EXPECT_NE(report.first_faults[1].what.find("of another size"),
            std::string::npos);

  options.manifest = directory_ / "none.xxh";
  EXPECT_EQ(VerifyTables(options).status().code(), StatusCode::kNotFound);
  tables::WriteFile(directory_ / "bad.xxh", "nonsense");
  options.manifest = directory_ / "bad.xxh";
  EXPECT_EQ(VerifyTables(options).status().code(), StatusCode::kCorrupt);
}

TEST_F(VerifyTest, DamagedTablesGetNoManifest) {
  Write(At(0, 17, 3), "\x7f");
  VerifyOptions write = Options();
  write.write_manifest = directory_ / "a.xxh";
  const VerifyReport report = Verify(write);
  EXPECT_TRUE(report.manifest_written.empty());
  EXPECT_FALSE(std::filesystem::exists(write.write_manifest));
}

// Killed at every call of the progress callback in turn; the run after it ends
// with the same report, faults of the part read before included.
TEST_F(VerifyTest, KilledRunsGoOn) {
  Write(At(0, 17, 3), "\x7f");
  VerifyOptions options = Options();
  options.state = directory_ / "state";
  options.threads = 1;
  const VerifyReport whole = Verify(options);
  uint64_t resumed = 0;
  bool killed = true;
  for (int runs = 0; killed; ++runs) {
    ASSERT_LT(runs, 50);
    int calls = 0;
    VerifyOptions dying = options;
    dying.progress = [&](const std::string&, uint64_t, uint64_t) {
      if (calls++ == runs) ::raise(SIGKILL);
      return true;
    };
    killed = RunsUntilKilled([&] { return VerifyTables(dying).ok(); });
    if (!killed) break;
    const VerifyReport report = Verify(options);
    resumed = std::max(resumed, report.resumed_bytes);
    EXPECT_EQ(report.faults, 1u);
    EXPECT_EQ(report.whole_digest, whole.whole_digest);
    EXPECT_FALSE(std::filesystem::exists(options.state));
  }
  EXPECT_GT(resumed, 1'000'000u);
}

TEST_F(VerifyTest, ManifestOntoAnInputIsRefusedAndLeavesNothing) {
  const std::string before = ReadFile(directory_ / "tables.gguf");
  const size_t files = directory_.List().size();
  VerifyOptions options = Options();
  for (const char* name : {"tables.gguf", "no/directory", "."}) {
    options.write_manifest = directory_ / name;
    EXPECT_FALSE(VerifyTables(options).ok()) << name;
    EXPECT_EQ(directory_.List().size(), files) << name;
  }
  EXPECT_TRUE(ReadFile(directory_ / "tables.gguf") == before);
  options.write_manifest = options.state = directory_ / "both";
  EXPECT_EQ(VerifyTables(options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(VerifyTest, StateOfAnotherFileIsNotUsed) {
  VerifyOptions options = Options();
  options.state = directory_ / "state";
  options.threads = 1;
  options.progress = [](const std::string&, uint64_t done, uint64_t) {
    return done < 1'000'000;
  };
  EXPECT_EQ(VerifyTables(options).status().code(), StatusCode::kCancelled);
  FlipByte(tables_.output, At(0, 0, 0), 1);
  options.progress = nullptr;
  const Status other = VerifyTables(options).status();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("remove it to begin again"),
            std::string::npos);
}

TEST_F(VerifyTest, WhatIsNoStateIsNotToBeRemoved) {
  VerifyOptions options = Options();
  for (const char* name : {"tables.gguf", "no/directory", "."}) {
    options.state = directory_ / name;
    const Status status = VerifyTables(options).status();
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.message().find("remove"), std::string::npos)
        << status.ToString();
  }
}

}  // namespace
}  // namespace ecphory
