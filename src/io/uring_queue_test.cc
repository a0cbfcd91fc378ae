// What only io_uring does: kernels that take less or refuse.
#include "io/uring_queue.h"

#include <gtest/gtest.h>
#include <liburing.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <utility>

#include "io/io_choice.h"
#include "io/make_queue.h"
#include "io/queue_testing.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

constexpr uint64_t kSize = 64 * kTestRead;

int Enter(int ring, unsigned to_submit, unsigned min_complete, unsigned flags) {
  return io_uring_enter(static_cast<unsigned>(ring), to_submit, min_complete,
                        flags, nullptr);
}

// Takes at most 3 of what it is given, and is busy or interrupted in between.
int StingyEnter(int ring, unsigned to_submit, unsigned min_complete,
                unsigned flags) {
  static int calls = 0;
  switch (++calls % 4) {
    case 0: return -EINTR;
    case 1: return to_submit > 0 ? -EAGAIN : -EINTR;
    default:
      return Enter(ring, to_submit < 3 ? to_submit : 3, min_complete, flags);
  }
}

int BrokenEnter(int, unsigned, unsigned, unsigned) { return -EBADF; }
int BusyEnter(int, unsigned, unsigned, unsigned) { return -EBUSY; }

class UringQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!UringAllowed().ok()) GTEST_SKIP() << UringAllowed().ToString();
    WriteFile(dir_ / "f", FileBytes(0, kSize));
    file_ = OpenTable(dir_ / "f");
  }
  std::unique_ptr<ReadQueue> Make(UringEnter enter) {
    auto queue =
        MakeUringQueue({{file_, false}}, {.depth = 16, .enter = enter});
    EXPECT_TRUE(queue.ok()) << queue.status().ToString();
    return std::move(queue).value();
  }

  TestDirectory dir_;
  std::shared_ptr<const TableFile> file_;
};

TEST_F(UringQueueTest, AKernelThatTakesLess) {
  const auto queue = Make(StingyEnter);
  const ReadMemory memory(200 * kTestRead);
  const auto reads = RandomReads(0, kSize, 200, memory.data(), 1);
  std::vector<int> seen(reads.size());
  size_t submitted = 0;
  size_t reaped = 0;
  int refusals = 0;
  while (reaped < reads.size()) {
    const size_t taken = *queue->Submit(std::span(reads).subspan(submitted));
    submitted += taken;
    refusals += taken == 0;
    ASSERT_LT(refusals, 1000);
    if (submitted == reaped) continue;
    CompletedRead done[16];
    const size_t got = *queue->Reap(done, 1);
    for (size_t i = 0; i < got; ++i) {
      EXPECT_EQ(done[i].result, static_cast<int32_t>(kTestRead));
      EXPECT_EQ(++seen[done[i].tag], 1);
      EXPECT_TRUE(HoldsFileBytes(reads[done[i].tag], 0, kTestRead));
    }
    reaped += got;
  }
  EXPECT_EQ(submitted, reads.size());
}

TEST_F(UringQueueTest, ARefusedSubmissionLeavesNothingBehind) {
  const auto busy = Make(BusyEnter);
  const ReadMemory memory(4 * kTestRead);
  const auto reads = RandomReads(0, kSize, 4, memory.data(), 2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*busy->Submit(reads), 0u);
  const auto broken = Make(BrokenEnter);
  for (int i = 0; i < 100; ++i) {
    const auto refused = broken->Submit(reads);
    EXPECT_EQ(refused.status().code(), StatusCode::kIoError);
  }
  EXPECT_EQ(*broken->Reap({}, 0), 0u);
}

TEST_F(UringQueueTest, NeedsFilesOnDisk) {
  const auto memory = *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, 9)));
  const auto refused = MakeUringQueue({{memory, false}}, {});
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("mem"), std::string::npos);
}

// Runs `test` in a process of its own; true when it returned true.
bool InChild(const std::function<bool()>& test) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(test() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Makes io_uring_setup fail with `error` in this process for good.
bool DenyUring(int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{4, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Whether a process to which io_uring is denied reads all the same.
bool FallsBack(const std::string& path, int error, StatusCode code,
               const char* cause) {
  if (!DenyUring(error)) return true;
  const Status denied = UringAllowed();
  if (denied.code() != code) return false;
  if (denied.message().find(cause) == std::string::npos) return false;
  const auto file = OpenTable(path);
  for (const IoMode mode : {IoMode::kUring, IoMode::kBuffered}) {
    auto made = MakeQueue(mode, {&file, 1}, {.depth = 8, .threads = 2});
    if (!made.ok() || made->denied.find(cause) == std::string::npos) {
      return false;
    }
    if (mode == IoMode::kUring && made->mode != IoMode::kPread) return false;
    const TableRange table{0, 0, kSize};
    // kAuto takes the page cache for a file as small as this.
    const auto choice =
        ChooseIo({.mode = mode == IoMode::kUring ? mode : IoMode::kAuto,
                  .files = {&file, 1},
                  .tables = {&table, 1},
                  .queue = {.depth = 8, .threads = 2}});
    if (!choice.ok() || !choice->fallback) return false;
    const ReadMemory memory(20 * kTestRead);
    const auto reads = RandomReads(0, kSize, 20, memory.data(), 1);
    for (const int32_t result : RunReads(made->queue.get(), reads)) {
      if (result != static_cast<int32_t>(kTestRead)) return false;
    }
  }
  return true;
}

TEST_F(UringQueueTest, DeniedItFallsBackAndSaysWhy) {
  struct Denial {
    int error;
    StatusCode code;
    const char* cause;
  };
  for (const Denial& denial :
       {Denial{EPERM, StatusCode::kUnsupported, "io_uring is denied"},
        Denial{ENOSYS, StatusCode::kUnsupported, "no io_uring"},
        Denial{ENOMEM, StatusCode::kResourceExhausted, "locked memory limit"},
        Denial{EMFILE, StatusCode::kResourceExhausted, "ulimit -n"}}) {
    EXPECT_TRUE(InChild([&] {
      return FallsBack(dir_ / "f", denial.error, denial.code, denial.cause);
    })) << denial.error;
  }
}

TEST_F(UringQueueTest, NoDescriptorLeft) {
  EXPECT_TRUE(InChild([&] {
    const auto file = OpenFile(dir_ / "f");
    const rlimit limit{static_cast<rlim_t>((*file)->descriptor()) + 1, 20000};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const auto table = TableFile::Open(*file);
    return table.status().code() == StatusCode::kResourceExhausted &&
           table.status().message().find("ulimit -n") != std::string::npos &&
           UringAllowed().code() == StatusCode::kResourceExhausted;
  }));
}

TEST_F(UringQueueTest, WithoutLockedMemory) {
  EXPECT_TRUE(InChild([&] {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) return false;
    if (::geteuid() == 0 && ::setuid(65534) != 0) return false;
    auto made = MakeQueue(IoMode::kUring, {&file_, 1}, {.depth = 64});
    if (!made.ok()) return false;
    const ReadMemory memory(20 * kTestRead);
    // Refused without privileges; reads work all the same.
    if (made->queue->RegisterMemory({memory.data(), 20 * kTestRead})) {
      return false;
    }
    const auto reads = RandomReads(0, kSize, 20, memory.data(), 1);
    for (const int32_t result : RunReads(made->queue.get(), reads)) {
      if (result != static_cast<int32_t>(kTestRead)) return false;
    }
    return true;
  }));
}

}  // namespace
}  // namespace ecphory
