#include "io/io_choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "io/fault_queue.h"
#include "io/queue_testing.h"
#include "io/small_disk.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

constexpr uint64_t kSize = 64 * kTestRead;

std::vector<std::shared_ptr<const TableFile>> OneFile(const std::string& path) {
  WriteFile(path, FileBytes(0, kSize));
  ::sync();
  return {OpenTable(path)};
}

TEST(ChooseIo, SmallTablesGoThroughThePageCache) {
  TestDirectory dir;
  const auto files = OneFile(dir / "f");
  const TableRange tables[] = {{0, 0, 1000}, {0, 5000, 100000}};
  const auto choice = ChooseIo({.files = files, .tables = tables});
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->mode, IoMode::kBuffered);
  EXPECT_FALSE(choice->direct);
  EXPECT_FALSE(choice->fallback);
  EXPECT_TRUE(choice->page_cache_holds);
  EXPECT_EQ(choice->reason,
            "page cache, depth 256: tables of 1 MB: the page cache holds them");
  EXPECT_TRUE(TablesAreSmall(1 << 30, uint64_t{1} << 33));
  EXPECT_FALSE(TablesAreSmall((1 << 30) + 1, uint64_t{1} << 40));
  EXPECT_FALSE(TablesAreSmall(1 << 30, (uint64_t{1} << 33) - 8));
}

TEST(ChooseIo, LargeTablesAreMeasured) {
  TestDirectory dir;
  auto files = OneFile(dir / "f");
  if (files[0]->direct() < 0) GTEST_SKIP() << files[0]->direct_refusal();
  // Larger than the file is on disk: a hole, as large as it takes.
  constexpr uint64_t kLarge = uint64_t{3} << 30;
  ASSERT_EQ(::truncate((dir / "f").c_str(), kLarge), 0);
  files = {OpenTable(dir / "f")};
  const TableRange table{0, 300, kLarge - 300};
  for (const double seconds : {0.25, 0.0}) {
    const auto choice = ChooseIo({.files = files,
                                  .tables = {&table, 1},
                                  .queue = {.depth = 100, .threads = 2},
                                  .probe_seconds = seconds});
    ASSERT_TRUE(choice.ok()) << choice.status().ToString();
    EXPECT_TRUE(choice->direct) << choice->reason;
    const char* expected =
        seconds > 0 ? " random reads/s measured (" : ": not measured";
    EXPECT_NE(choice->reason.find(expected), std::string::npos)
        << choice->reason;
    EXPECT_NE(choice->queue, nullptr);
  }
}

TEST(ChooseIo, WhatIsAskedForIsUsed) {
  TestDirectory dir;
  const auto files = OneFile(dir / "f");
  const TableRange table{0, 0, kSize};
  for (const IoMode mode : {IoMode::kUring, IoMode::kPread, IoMode::kBuffered,
                            IoMode::kMmap, IoMode::kRam}) {
    const auto choice =
        ChooseIo({.mode = mode, .files = files, .tables = {&table, 1}});
    ASSERT_TRUE(choice.ok());
    const bool view = mode == IoMode::kMmap || mode == IoMode::kRam;
    EXPECT_EQ(choice->queue == nullptr, view);
    if (files[0]->direct() < 0) continue;
    EXPECT_EQ(choice->mode, mode) << choice->reason;
    EXPECT_EQ(choice->direct, mode == IoMode::kUring || mode == IoMode::kPread);
    EXPECT_FALSE(choice->fallback);
    EXPECT_FALSE(choice->page_cache_holds);
    const std::string size = std::to_string((kSize + 999'999) / 1'000'000);
    const std::map<IoMode, std::string> reasons = {
        {IoMode::kUring, "io_uring, O_DIRECT, depth 256 (asked for)"},
        {IoMode::kPread, "pread, O_DIRECT, 16 threads (asked for)"},
        {IoMode::kBuffered, "page cache, depth 256 (asked for)"},
        {IoMode::kMmap,
         "mapped, " + size + " MB, through the page cache (asked for)"},
        {IoMode::kRam, "copied to memory, " + size + " MB (asked for)"}};
    EXPECT_EQ(choice->reason, reasons.at(mode));
  }
}

TEST(ChooseIo, FilesInMemory) {
  const std::vector<std::shared_ptr<const TableFile>> files = {
      *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, kSize)))};
  const TableRange table{0, 0, kSize};
  for (const IoMode mode :
       {IoMode::kAuto, IoMode::kUring, IoMode::kPread, IoMode::kMmap}) {
    const auto choice = ChooseIo({.mode = mode,
                                  .files = files,
                                  .tables = {&table, 1},
                                  .queue = {.depth = 4, .threads = 2}});
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->mode, IoMode::kPread);
    EXPECT_FALSE(choice->direct);
    EXPECT_EQ(choice->fallback,
              mode == IoMode::kUring || mode == IoMode::kMmap);
    const std::string expected =
        mode == IoMode::kPread ? " (asked for)" : ": the file lies in memory";
    EXPECT_EQ(choice->reason.find("pread, 2 threads" + expected), 0u)
        << choice->reason;
  }
  const auto ram =
      ChooseIo({.mode = IoMode::kRam, .files = files, .tables = {&table, 1}});
  EXPECT_EQ(ram->mode, IoMode::kRam);
}

TEST(ChooseIo, AMemoryFileSystem) {
  SmallDisk disk(4 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs privileges";
  const auto files = OneFile(disk.directory() / "f");
  const TableRange table{0, 0, kSize};
  const auto choice =
      ChooseIo({.mode = IoMode::kUring, .files = files, .tables = {&table, 1}});
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->direct);
  EXPECT_TRUE(choice->fallback);
  EXPECT_NE(choice->reason.find("tmpfs keeps files in memory: read through the "
                                "page cache"),
            std::string::npos)
      << choice->reason;
}

TEST(IoProbe, MeasuresAndReportsFailedReads) {
  const auto file =
      *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, kSize)));
  const TableRange tables[] = {{0, 100, kSize - 100}, {0, 7, 0}};
  auto made = MakeQueue(IoMode::kPread, {&file, 1}, {.depth = 8, .threads = 1});
  IoProbe probe({&file, 1}, tables, 264);
  const auto rate = probe.Measure(made->queue.get(), 0.01);
  ASSERT_TRUE(rate.ok());
  EXPECT_GT(*rate, 0);
  FaultQueuePlan plan;
  plan.fail_read = 20;
  const auto faulty = MakeFaultQueue(std::move(made->queue), plan);
  EXPECT_EQ(probe.Measure(faulty.get(), 10).status().code(),
            StatusCode::kIoError);
}

TEST(OrderIsClear, NeedsDistanceAndRepetition) {
  const std::vector<double> fast = {130, 140}, slow = {90, 100},
                            near = {105, 120};
  const std::vector<double> once = {900};
  EXPECT_TRUE(OrderIsClear(fast, slow));
  EXPECT_TRUE(OrderIsClear(slow, fast));
  EXPECT_FALSE(OrderIsClear(fast, near));
  EXPECT_FALSE(OrderIsClear(once, slow));
  EXPECT_FALSE(OrderIsClear({}, {}));
}

}  // namespace
}  // namespace ecphory
