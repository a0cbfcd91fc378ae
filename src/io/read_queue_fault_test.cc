// What every read queue must do when files, buffers and threads go away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "io/fault_file.h"
#include "io/queue_testing.h"
#include "io/read_queue_testing.h"

namespace ecphory {
namespace {

class ReadQueueFaultTest : public ReadQueueTest {};

INSTANTIATE_TEST_SUITE_P(Ways, ReadQueueFaultTest, ::testing::ValuesIn(kWays),
                         WayName);

TEST_P(ReadQueueFaultTest, AReadThatFailsIsItsOwn) {
  if (GetParam().in_memory) GTEST_SKIP() << "memory takes any address";
  const auto queue = Make(8);
  const ReadMemory memory(3 * kTestRead);
  auto reads = RandomReads(0, kSize[0], 3, memory.data(), 4);
  // No page is mapped here.
  reads[1].buffer = reinterpret_cast<uint8_t*>(uintptr_t{kTestRead});
  const auto results = RunReads(queue.get(), reads);
  EXPECT_EQ(results[0], static_cast<int32_t>(kTestRead));
  const bool may_be_tried_again = GetParam().uring && !GetParam().direct;
  EXPECT_EQ(results[1], may_be_tried_again ? -EAGAIN : -EFAULT);
  EXPECT_EQ(results[2], static_cast<int32_t>(kTestRead));
}

TEST_P(ReadQueueFaultTest, TheSubmittingThreadMayEnd) {
  const auto queue = Make(64);
  const ReadMemory memory(64 * kTestRead);
  const auto reads = RandomReads(0, kSize[0], 64, memory.data(), 6);
  for (int round = 0; round < 10; ++round) {
    if (files_[0]->buffered() >= 0) {
      ::posix_fadvise(files_[0]->buffered(), 0, 0, POSIX_FADV_DONTNEED);
    }
    std::thread([&] { ASSERT_EQ(*queue->Submit(reads), 64u); }).join();
    CompletedRead done[64];
    ASSERT_EQ(*queue->Reap(done, 64), 64u);
    for (const CompletedRead& read : done) {
      if (read.result == -EAGAIN) continue;  // cancelled: to be read again
      EXPECT_EQ(read.result, static_cast<int32_t>(kTestRead));
      EXPECT_TRUE(HoldsFileBytes(reads[read.tag], 0, kTestRead));
    }
  }
}

TEST_P(ReadQueueFaultTest, AFileCutWhileInUseReadsShort) {
  if (GetParam().in_memory) GTEST_SKIP();
  const auto queue = Make(8);
  ASSERT_EQ(::truncate(Path(0).c_str(), 3 * kTestRead), 0);
  const ReadMemory memory(2 * kTestRead);
  const QueuedRead reads[] = {
      {0, kTestRead, 2 * kTestRead, memory.data(), 0},
      {0, kTestRead, 9 * kTestRead, memory.data() + kTestRead, 1}};
  const auto results = RunReads(queue.get(), reads);
  EXPECT_EQ(results[0], static_cast<int32_t>(kTestRead));
  EXPECT_EQ(results[1], 0);
  EXPECT_EQ(files_[0]->CheckSize().code(), StatusCode::kCorrupt);
  EXPECT_TRUE(files_[1]->CheckSize().ok());
}

TEST_P(ReadQueueFaultTest, AFileReplacedByRenameStaysTheOldOne) {
  if (GetParam().in_memory) GTEST_SKIP();
  const auto queue = Make(8);
  WriteFile(dir_ / "new", FileBytes(77, kSize[0]));
  std::filesystem::rename(dir_ / "new", Path(0));
  const ReadMemory memory(8 * kTestRead);
  const auto reads = RandomReads(0, kSize[0], 8, memory.data(), 8);
  for (const int32_t result : RunReads(queue.get(), reads)) {
    EXPECT_EQ(result, static_cast<int32_t>(kTestRead));
  }
  for (const QueuedRead& read : reads) {
    EXPECT_TRUE(HoldsFileBytes(read, 0, kTestRead));
  }
}

TEST(PoolQueue, FailuresOfAFileWithoutDescriptorAreErrno) {
  FaultPlan plan;
  plan.bad_begin = 0;
  plan.bad_end = 10;
  plan.truncated_at = 5000;
  const auto table = *TableFile::Open(
      MakeFaultFile(MakeMemoryFile("mem", FileBytes(0, 9000)), plan));
  const auto queue =
      std::move(MakePoolQueue({{table, false}}, {.threads = 1})).value();
  const ReadMemory memory(kTestRead * 3);
  const QueuedRead reads[] = {{0, 100, 0, memory.data(), 0},
                              {0, 100, 4800, memory.data(), 1},
                              {0, 100, 6000, memory.data(), 2}};
  EXPECT_EQ(RunReads(queue.get(), reads), (std::vector<int32_t>{-EIO, 100, 0}));
}

}  // namespace
}  // namespace ecphory
