#include "io/file_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "io/bus_guard.h"
#include "io/fault_file.h"
#include "io/queue_testing.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

constexpr uint64_t kSize = 40 * 4096 + 100;
constexpr uint64_t kBegin = 4096 + 300;  // of the view
constexpr uint64_t kViewSize = kSize - kBegin - 50;

class FileViewTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "f", FileBytes(3, kSize));
    file_ = OpenTable(dir_ / "f");
  }
  Result<std::unique_ptr<FileView>> Make(uint64_t offset, uint64_t size) {
    return GetParam() ? MakeMapView(file_, offset, size)
                      : MakeRamView(*file_, offset, size, nullptr);
  }

  TestDirectory dir_;
  std::shared_ptr<const TableFile> file_;
};

INSTANTIATE_TEST_SUITE_P(Views, FileViewTest, ::testing::Values(true, false),
                         [](const auto& map) {
                           return map.param ? "Map" : "Ram";
                         });

std::vector<ViewRange> SomeRanges() {
  std::vector<ViewRange> ranges;
  std::mt19937 rng(1);
  for (int i = 0; i < 100; ++i) {
    ranges.push_back({kBegin + rng() % (kViewSize - 264), 264});
  }
  ranges.push_back({kBegin, 1});
  ranges.push_back({kBegin + kViewSize - 1, 1});
  ranges.push_back({kBegin + kViewSize, 0});
  return ranges;
}

TEST_P(FileViewTest, ShowsTheFilesBytesInOrder) {
  const auto view = Make(kBegin, kViewSize);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  const auto ranges = SomeRanges();
  for (int round = 0; round < 3; ++round) {
    // Cold at first, then warm.
    if (round == 0)
      ::posix_fadvise(file_->buffered(), 0, 0, POSIX_FADV_DONTNEED);
    size_t next = 0;
    size_t wrong = 0;
    size_t failed = 0;
    const Status status = (*view)->Visit(
        ranges,
        [&](size_t i, const uint8_t* bytes) {
          wrong += i != next++;
          for (uint32_t k = 0; k < ranges[i].bytes; ++k) {
            wrong += bytes[k] != FileByte(3, ranges[i].offset + k);
          }
        },
        &failed);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(next, ranges.size());
    EXPECT_EQ(wrong, 0u);
  }
}

TEST_P(FileViewTest, NamesARangeOutside) {
  const auto view = Make(kBegin, kViewSize);
  ASSERT_TRUE(view.ok());
  const auto nothing = [](size_t, const uint8_t*) {};
  for (const ViewRange bad :
       {ViewRange{kBegin - 1, 1}, ViewRange{kBegin + kViewSize, 1},
        ViewRange{kBegin + kViewSize - 5, 6}, ViewRange{UINT64_MAX, 2}}) {
    const ViewRange ranges[] = {{kBegin, 1}, bad};
    size_t failed = 0;
    const Status status = (*view)->Visit(ranges, nothing, &failed);
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_EQ(failed, 1u);
  }
  EXPECT_EQ(Make(kSize, 1).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(Make(UINT64_MAX, 2).status().code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Make(kSize, 0).ok());
}

TEST_P(FileViewTest, AFileCutUnderIt) {
  const auto view = Make(kBegin, kViewSize);
  ASSERT_TRUE(view.ok());
  ASSERT_EQ(::truncate((dir_ / "f").c_str(), 8192), 0);
  const ViewRange range{20 * 4096, 264};
  size_t failed = 0;
  uint8_t copy[264];
  const Status status = (*view)->Visit(
      std::span(&range, 1),
      [&](size_t, const uint8_t* bytes) { std::memcpy(copy, bytes, 264); },
      &failed);
  if (!GetParam()) {  // has its own copy
    EXPECT_TRUE(status.ok());
    return;
  }
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("cut to 8192 bytes"), std::string::npos);
}

// Inside a page that is in use: past its new end it holds zeros, and touching
// them is no fault.
TEST_P(FileViewTest, AFileCutInsideAPageThatIsCopied) {
  if (!GetParam()) GTEST_SKIP() << "has its own copy";
  const auto view = Make(kBegin, kViewSize);
  ASSERT_TRUE(view.ok());
  const ViewRange range{2 * 4096 + 100, 264};
  const std::string path = dir_ / "f";
  size_t failed = 9;
  uint8_t copy[264];
  const Status status = (*view)->Visit(
      std::span(&range, 1),
      [&](size_t, const uint8_t* bytes) {
        (void)!::truncate(path.c_str(), 2 * 4096 + 50);
        std::memcpy(copy, bytes, 264);
      },
      &failed);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
  EXPECT_EQ(failed, 0u);
}

// The cut comes between the check of the size and the copy.
TEST_P(FileViewTest, AFileCutWhileItIsCopied) {
  if (!GetParam()) GTEST_SKIP() << "has its own copy";
  const auto view = Make(kBegin, kViewSize);
  ASSERT_TRUE(view.ok());
  const ViewRange ranges[] = {{2 * 4096, 264}, {20 * 4096, 264}, {8192, 264}};
  const std::string path = dir_ / "f";
  for (int round = 0; round < 2; ++round) {
    size_t failed = 9;
    uint8_t copy[264];
    const Status status = (*view)->Visit(
        ranges,
        [&](size_t i, const uint8_t* bytes) {
          if (i == 1) (void)!::truncate(path.c_str(), 3 * 4096);
          std::memcpy(copy, bytes, 264);
        },
        &failed);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
    EXPECT_NE(status.message().find("cut to 12288 bytes"), std::string::npos);
    EXPECT_EQ(failed, 1u);
    // Grown again, it works again.
    WriteFile(path, FileBytes(3, kSize));
    EXPECT_TRUE((*view)
                    ->Visit(
                        ranges, [](size_t, const uint8_t*) {}, &failed)
                    .ok());
  }
}

TEST(MapView, NeedsADescriptor) {
  const auto memory =
      *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, 100)));
  EXPECT_EQ(MakeMapView(memory, 0, 10).status().code(),
            StatusCode::kUnsupported);
}

TEST(RamView, FilesWithoutDescriptorAndTheirFailures) {
  FaultPlan plan;
  plan.bad_begin = 500;
  plan.bad_end = 501;
  const auto memory = *TableFile::Open(
      MakeFaultFile(MakeMemoryFile("mem", FileBytes(0, 1000)), plan));
  EXPECT_TRUE(MakeRamView(*memory, 0, 500, nullptr).ok());
  EXPECT_EQ(MakeRamView(*memory, 0, 501, nullptr).status().code(),
            StatusCode::kIoError);
}

TEST(RamView, TellsItsProgressAndStops) {
  TestDirectory dir;
  constexpr uint64_t kLarge = 40 << 20;
  WriteFile(dir / "f", FileBytes(1, kLarge));
  const auto file = OpenTable(dir / "f");
  std::vector<uint64_t> seen;
  ASSERT_TRUE(
      MakeRamView(*file, 100, kLarge - 100, [&](uint64_t done, uint64_t size) {
        EXPECT_EQ(size, kLarge - 100);
        seen.push_back(done);
        return true;
      }).ok());
  EXPECT_GT(seen.size(), 1u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), kLarge - 100);
  EXPECT_EQ(
      MakeRamView(*file, 0, kLarge, [](uint64_t, uint64_t) { return false; })
          .status()
          .code(),
      StatusCode::kCancelled);
}

TEST(RamView, RefusesWhatDoesNotFit) {
  TestDirectory dir;
  constexpr uint64_t kHuge = uint64_t{1} << 42;
  WriteFile(dir / "f", {});
  ASSERT_EQ(::truncate((dir / "f").c_str(), kHuge), 0);  // sparse
  const Status refused =
      MakeRamView(*OpenTable(dir / "f"), 0, kHuge, nullptr).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("takes 4096.0 GiB"), std::string::npos)
      << refused.message();
}

// A mapped page with no file behind it.
uint8_t* PageWithoutFile(const TestDirectory& dir) {
  WriteFile(dir / "empty", {});
  const int fd = ::open((dir / "empty").c_str(), O_RDONLY);
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return static_cast<uint8_t*>(page);
}

void Touch(void* byte) { (void)*static_cast<volatile uint8_t*>(byte); }

TEST(BusGuard, ActsOnlyInsideItsMemory) {
  TestDirectory dir;
  uint8_t* page = PageWithoutFile(dir);
  ASSERT_TRUE(InstallBusGuard().ok());
  EXPECT_FALSE(RunGuarded({page, 4096}, Touch, page + 7));
  // The inner guard covers something else: the outer one acts.
  struct Nested {
    uint8_t* page;
    bool returned = false;
  } nested{page};
  EXPECT_FALSE(RunGuarded(
      {page, 4096},
      [](void* context) {
        Nested* n = static_cast<Nested*>(context);
        static const uint8_t other[1] = {};
        (void)RunGuarded(other, Touch, n->page);
        n->returned = true;
      },
      &nested));
  EXPECT_FALSE(nested.returned);
  EXPECT_FALSE(RunGuarded({page, 4096}, Touch, page));
  uint8_t fine = 0;
  EXPECT_TRUE(RunGuarded({page, 4096}, Touch, &fine));
  ::munmap(page, 4096);
}

TEST(BusGuardDeathTest, OtherFaultsGoToTheHandlerThatWasThere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TestDirectory dir;
  uint8_t* page = PageWithoutFile(dir);
  const auto fault = [&](void (*earlier)(int)) {
    std::signal(SIGBUS, earlier);
    if (!InstallBusGuard().ok()) ::_exit(1);
    if (RunGuarded({page, 4096}, Touch, page)) ::_exit(2);
    Touch(page);
    ::_exit(3);
  };
  EXPECT_EXIT(fault([](int) { ::_exit(42); }), ::testing::ExitedWithCode(42),
              "");
#if !defined(__SANITIZE_ADDRESS__)  // which has a handler of its own
  EXPECT_EXIT(fault(SIG_DFL), ::testing::KilledBySignal(SIGBUS), "");
#endif
}

}  // namespace
}  // namespace ecphory
