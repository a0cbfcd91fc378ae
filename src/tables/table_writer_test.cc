#include "tables/table_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>

#include "io/file_size_limit.h"
#include "io/small_disk.h"
#include "io/test_directory.h"
#include "tables/digest.h"
#include "tables/journal.h"
#include "tables/testing.h"

namespace ecphory::tables {
namespace {

// A header, two regions of 6-byte rows and a gap between them.
TableFilePlan Plan() {
  TableFilePlan plan;
  plan.header = std::string(100, 'h');
  plan.regions = {{"one", 100, 6 * 300, 6}, {"two", 2048, 6 * 500, 6}};
  plan.total_bytes = 2048 + 6 * 500 + 24;
  return plan;
}

uint8_t ByteAt(size_t region, uint64_t at) {
  return static_cast<uint8_t>(at * 7 + at / 251 + region * 91 + 1);
}

Status Fill(size_t region, uint64_t begin, std::span<uint8_t> out, size_t) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = ByteAt(region, begin + i);
  return {};
}

std::string Expected() {
  const TableFilePlan plan = Plan();
  std::string bytes = plan.header;
  bytes.resize(plan.total_bytes, '\0');
  for (size_t r = 0; r < plan.regions.size(); ++r) {
    for (uint64_t i = 0; i < plan.regions[r].bytes; ++i) {
      bytes[plan.regions[r].offset + i] = static_cast<char>(ByteAt(r, i));
    }
  }
  return bytes;
}

WriteOptions Options(const std::string& path) {
  WriteOptions options;
  options.path = path;
  options.signature = "test";
  options.chunk_bytes = 512;
  options.threads = 1;
  return options;
}

class TableWriterTest : public ::testing::Test {
 protected:
  Result<WrittenFile> Write(const WriteOptions& options) {
    return WriteTableFile(Plan(), Fill, options);
  }
  void ExpectWhole() {
    EXPECT_EQ(ReadFile(path_), Expected());
    EXPECT_EQ(directory_.List(), std::vector<std::string>{"out"});
  }

  TestDirectory directory_;
  std::string path_ = directory_ / "out";
};

TEST_F(TableWriterTest, WritesHeaderRegionsAndZeros) {
  for (const size_t threads : {1, 4}) {
    WriteOptions options = Options(path_);
    options.threads = threads;
    options.overwrite = true;
    const auto written = Write(options);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    EXPECT_EQ(written->resumed_bytes, 0u);
    ExpectWhole();
  }
}

TEST_F(TableWriterTest, SumsAreThoseOfTheChunks) {
  const auto written = Write(Options(path_));
  ASSERT_TRUE(written.ok());
  const std::vector<Region> regions = AllRegions(Plan());
  const std::vector<Chunk> chunks = ChunksOf(regions, 512);
  ASSERT_EQ(written->digests.size(), chunks.size());
  EXPECT_EQ(chunks[1].bytes, 510u);  // whole rows
  const std::string bytes = Expected();
  for (size_t i = 0; i < chunks.size(); ++i) {
    const uint64_t at = regions[chunks[i].region].offset + chunks[i].begin;
    EXPECT_EQ(written->digests[i],
              Digest::Of(std::string_view(bytes).substr(at, chunks[i].bytes)));
  }
}

// Killed at every call of the progress callback in turn, which is between any
// two steps: what is there afterwards is always good enough to go on from.
TEST_F(TableWriterTest, KilledAtEveryStepGoesOnAndEndsTheSame) {
  int runs = 0;
  uint64_t resumed = 0;
  for (bool killed = true; killed; ++runs) {
    ASSERT_LT(runs, 100);
    std::error_code ignored;
    std::filesystem::remove(path_ + ".partial", ignored);
    std::filesystem::remove(path_ + ".partial.journal", ignored);
    int calls = 0;
    WriteOptions options = Options(path_);
    options.progress = [&](const std::string&, uint64_t, uint64_t) {
      if (calls++ == runs) ::raise(SIGKILL);
      return true;
    };
    killed = RunsUntilKilled([&] { return Write(options).ok(); });
    if (!killed) break;
    EXPECT_FALSE(std::filesystem::exists(path_));
    const auto written = Write(Options(path_));
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    EXPECT_GE(written->resumed_bytes, resumed);
    resumed = written->resumed_bytes;
    ExpectWhole();
    std::filesystem::remove(path_);
  }
  EXPECT_GT(runs, 10);
  EXPECT_EQ(resumed, 100u + 1800 + 3000);
}

// One run after the other dies a little further on.
TEST_F(TableWriterTest, KilledAgainAndAgainStillEnds) {
  int runs = 0;
  for (bool killed = true; killed; ++runs) {
    ASSERT_LT(runs, 100);
    int calls = 0;
    WriteOptions options = Options(path_);
    options.progress = [&](const std::string& phase, uint64_t, uint64_t) {
      // Verifying is not saved, so a run must get through it once.
      if (phase == "writing" && ++calls == 4) ::raise(SIGKILL);
      return true;
    };
    killed = RunsUntilKilled([&] { return Write(options).ok(); });
  }
  EXPECT_GT(runs, 3);
  ExpectWhole();
}

TEST_F(TableWriterTest, KilledAfterTheNameWasGivenIsDone) {
  ASSERT_TRUE(Write(Options(path_)).ok());
  // The journal as it stands before it is removed.
  auto journal = Journal::Create(path_ + ".partial.journal", "test");
  ASSERT_TRUE(journal.ok());
  ASSERT_TRUE((*journal)->Append("0 0123456789abcdef").ok());
  ASSERT_TRUE((*journal)->Append("verified").ok());
  const auto written = Write(Options(path_));
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  ExpectWhole();
}

TEST_F(TableWriterTest, CancelKeepsWhatIsDone) {
  WriteOptions options = Options(path_);
  options.progress = [](const std::string&, uint64_t done, uint64_t) {
    return done < 2000;
  };
  EXPECT_EQ(Write(options).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto written = Write(Options(path_));
  ASSERT_TRUE(written.ok());
  EXPECT_GT(written->resumed_bytes, 1000u);
  ExpectWhole();
}

TEST_F(TableWriterTest, RefusesWhatIsNotItsOwn) {
  WriteFile(path_, "theirs");
  Status status = Write(Options(path_)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("exists"), std::string::npos);
  EXPECT_EQ(ReadFile(path_), "theirs");
  std::filesystem::remove(path_);

  WriteFile(path_ + ".partial", "theirs");
  status = Write(Options(path_)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("no journal"), std::string::npos);
  EXPECT_EQ(ReadFile(path_ + ".partial"), "theirs");
  std::filesystem::remove(path_ + ".partial");

  WriteFile(path_ + ".partial.journal", "theirs");
  status = Write(Options(path_)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(path_ + ".partial.journal"), "theirs");
  EXPECT_EQ(directory_.List(), std::vector<std::string>{"out.partial.journal"});
}

// Killed between the name and the end; then the user wants something else.
TEST_F(TableWriterTest, AJournalWithoutAFileBindsNobody) {
  ASSERT_TRUE(Journal::Create(path_ + ".partial.journal", "another job").ok());
  const auto written = Write(Options(path_));
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  ExpectWhole();
  // Another program's file of that name stays.
  WriteFile(path_ + ".partial.journal", "mine");
  WriteOptions again = Options(path_);
  again.overwrite = true;
  EXPECT_EQ(Write(again).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(path_ + ".partial.journal"), "mine");
}

TEST_F(TableWriterTest, AnErrorBeforeTheFirstChunkLeavesNothing) {
  TableFilePlan plan = Plan();
  plan.header.clear();
  EXPECT_EQ(WriteTableFile(
                plan, [](auto...) { return Corrupt("row 0"); }, Options(path_))
                .status()
                .code(),
            StatusCode::kCorrupt);
  EXPECT_TRUE(directory_.List().empty());
}

TEST_F(TableWriterTest, RefusesToGoOnWithAnotherJob) {
  WriteOptions options = Options(path_);
  options.progress = [](const std::string&, uint64_t done, uint64_t) {
    return done < 2000;
  };
  ASSERT_FALSE(Write(options).ok());
  options = Options(path_);
  options.signature = "another";
  const Status status = Write(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("another source"), std::string::npos);
  ASSERT_TRUE(Write(Options(path_)).ok());
  ExpectWhole();
}

TEST_F(TableWriterTest, NoticesBytesThatChangedOnDisk) {
  WriteOptions options = Options(path_);
  options.progress = [this](const std::string& phase, uint64_t, uint64_t) {
    // Behind the writer's back, before it looks again.
    static bool done = false;
    if (phase == "verifying" && !done) {
      done = true;
      FlipByte(path_ + ".partial", 4000, 1);
    }
    return true;
  };
  const Status status = Write(options).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("read back"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TableWriterTest, ErrorsOfTheSourceComeThrough) {
  const auto fill = [](size_t, uint64_t, std::span<uint8_t>, size_t) {
    return IoError("no source");
  };
  EXPECT_EQ(WriteTableFile(Plan(), fill, Options(path_)).status().message(),
            "no source");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TableWriterTest, SizeLimitLosesNothing) {
  {
    const FileSizeLimit limit(3000);
    EXPECT_EQ(Write(Options(path_)).status().code(),
              StatusCode::kResourceExhausted);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto written = Write(Options(path_));
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_GT(written->resumed_bytes, 1000u);
  ExpectWhole();
}

TEST(TableWriterDisk, RefusesBeforeAndGoesOnAfterAFullDisk) {
  SmallDisk disk(65536);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs root";
  const std::string path = disk.directory() / "out";
  TableFilePlan plan = Plan();
  plan.regions[1].bytes = 6 * 20000;
  plan.total_bytes = 2048 + 6 * 20000;
  const Status before = WriteTableFile(plan, Fill, Options(path)).status();
  EXPECT_EQ(before.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(before.message().find("make room"), std::string::npos);
  EXPECT_TRUE(disk.directory().List().empty());

  // The disk fills up while it writes.
  plan.regions[1].bytes = 6 * 5000;
  plan.total_bytes = 2048 + 6 * 5000;
  const std::string ballast = disk.directory() / "ballast";
  const auto fill = [&](size_t region, uint64_t begin, std::span<uint8_t> out,
                        size_t worker) {
    if (region == 1 && begin > 8000)
      WriteFile(ballast, std::string(65536, 'b'));
    return Fill(region, begin, out, worker);
  };
  const Status during = WriteTableFile(plan, fill, Options(path)).status();
  EXPECT_EQ(during.code(), StatusCode::kResourceExhausted);
  std::filesystem::remove(ballast);
  const auto written = WriteTableFile(plan, Fill, Options(path));
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_GT(written->resumed_bytes, 1000u);
}

TEST_F(TableWriterTest, NamesATargetThatCannotBeWritten) {
  EXPECT_EQ(Write(Options(directory_ / "missing/out")).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Write(Options("/dev/null")).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ecphory::tables
