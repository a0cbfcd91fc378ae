// A store that is refused the memory it asks for.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

#include "engram/store.h"
#include "engram/store_testing.h"
#include "io/test_directory.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ECPHORY_OWN_ALLOCATOR 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ECPHORY_OWN_ALLOCATOR 1
#endif

namespace ecphory::engram {
namespace {

constexpr uint32_t kWidth = 65536;  // rows of 128 KiB
constexpr uint64_t kRows = 2048;    // 256 MiB
constexpr uint64_t kSpareBytes = uint64_t{96} << 20;

uint64_t AddressSpaceBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// What `open` gives in a process that may map kSpareBytes more than now.
std::string InSmallProcess(const std::function<Status()>& open) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const uint64_t bytes = AddressSpaceBytes() + kSpareBytes;
    const rlimit limit{bytes, bytes};
    std::string text = "no limit";
    if (::setrlimit(RLIMIT_AS, &limit) == 0) text = open().ToString();
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char piece[256];
  for (ssize_t got; (got = ::read(ends[0], piece, sizeof(piece))) > 0;) {
    text.append(piece, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0 ? text : "crashed: " + text;
}

class StoreMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef ECPHORY_OWN_ALLOCATOR
    GTEST_SKIP() << "the sanitizer ends a process that has no memory";
#endif
    // One row, then a hole.
    std::ofstream file(path_, std::ios::binary);
    file << std::string(kWidth * 2, '\x11');
    file.close();
    ASSERT_EQ(::truncate(path_.c_str(), kRows * kWidth * 2), 0);
  }

  Status Open(const StoreOptions& options) const {
    TableSource source;
    source.name = "t";
    source.codec = TableCodec::kBf16;
    source.rows = kRows;
    source.width = kWidth;
    ECPHORY_ASSIGN_OR_RETURN(source.file, OpenFile(path_));
    return Store::Open({source}, options).status();
  }

  void ExpectRefused(const StoreOptions& options,
                     const std::string& part) const {
    const std::string said = InSmallProcess([&] { return Open(options); });
    EXPECT_EQ(said.find("resource exhausted"), 0u) << said;
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "table";
};

TEST_F(StoreMemory, FewReadsFit) {
  const StoreOptions options{.io = IoMode::kPread,
                             .io_threads = 1,
                             .queue_depth = 8,
                             .cache_bytes = 0};
  EXPECT_EQ(InSmallProcess([&] { return Open(options); }), Status().ToString());
}

TEST_F(StoreMemory, ReadsInFlight) {
  for (const IoMode mode : {IoMode::kUring, IoMode::kPread}) {
    ExpectRefused(
        {.io = mode, .io_threads = 1, .queue_depth = 4096, .cache_bytes = 0},
        "4096 Engram reads of");
  }
}

TEST_F(StoreMemory, Threads) {
  ExpectRefused({.io = IoMode::kPread, .io_threads = 256, .cache_bytes = 0},
                "thread");
}

TEST_F(StoreMemory, Views) {
  ExpectRefused({.io = IoMode::kRam}, path_ + ": cannot allocate memory");
  ExpectRefused({.io = IoMode::kMmap}, path_ + ": cannot map into memory");
}

TEST_F(StoreMemory, Cache) {
  for (const uint64_t bytes : {uint64_t{1} << 30, UINT64_MAX}) {
    ExpectRefused({.io = IoMode::kPread,
                   .io_threads = 1,
                   .queue_depth = 8,
                   .cache_bytes = bytes},
                  "row cache of " + std::to_string(bytes) + " bytes");
  }
}

}  // namespace
}  // namespace ecphory::engram
