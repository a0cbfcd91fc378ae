// What every read queue must do, whichever way it reads.
#include "io/read_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <thread>

#include "io/fault_file.h"
#include "io/make_queue.h"
#include "io/page_cache_queue.h"
#include "io/pool_queue.h"
#include "io/queue_testing.h"
#include "io/test_directory.h"
#include "io/uring_queue.h"

namespace ecphory {
namespace {

struct Way {
  const char* name;
  bool uring;
  bool direct;
  bool hits_at_once;
  bool in_memory;
  bool page_cache = false;  // copies known pages itself
};

constexpr Way kWays[] = {
    {"UringDirect", true, true, false, false},
    {"UringBuffered", true, false, false, false},
    {"PoolDirect", false, true, false, false},
    {"PoolBuffered", false, false, false, false},
    {"PoolHits", false, false, true, false},
    {"PoolMemory", false, false, false, true},
    {"PageCacheUring", true, false, false, false, true},
    {"PageCachePool", false, false, true, false, true},
    {"PageCacheMemory", false, false, true, true, true},
};

// Two files with different bytes, the second of odd size.
class ReadQueueTest : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr uint64_t kSize[] = {1 << 20, (300 << 10) + 700};

  void SetUp() override {
    if (GetParam().uring && !UringAllowed().ok()) {
      GTEST_SKIP() << UringAllowed().ToString();
    }
    for (uint32_t i = 0; i < 2; ++i) {
      WriteFile(Path(i), FileBytes(i, kSize[i]));
      ::sync();
      files_.push_back(OpenOne(i));
    }
    if (GetParam().direct && files_[0]->direct() < 0) {
      GTEST_SKIP() << files_[0]->direct_refusal();
    }
  }

  std::string Path(uint32_t i) const { return dir_ / std::to_string(i); }

  std::shared_ptr<const TableFile> OpenOne(uint32_t i) const {
    if (!GetParam().in_memory) return OpenTable(Path(i));
    return *TableFile::Open(MakeMemoryFile(Path(i), FileBytes(i, kSize[i])));
  }

  std::unique_ptr<ReadQueue> Make(uint32_t depth) const {
    std::vector<QueueFile> files;
    for (const auto& file : files_) files.push_back({file, GetParam().direct});
    auto queue =
        GetParam().uring
            ? MakeUringQueue(files, {.depth = depth})
            : MakePoolQueue(files, {.depth = depth,
                                    .threads = 3,
                                    .hits_at_once = GetParam().hits_at_once});
    EXPECT_TRUE(queue.ok()) << queue.status().ToString();
    if (!GetParam().page_cache) return std::move(queue).value();
    return MakePageCacheQueue(files, std::move(queue).value());
  }

  TestDirectory dir_;
  std::vector<std::shared_ptr<const TableFile>> files_;
};

INSTANTIATE_TEST_SUITE_P(Ways, ReadQueueTest, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return way.param.name; });

TEST_P(ReadQueueTest, ReadsWhatTheFilesHold) {
  for (const uint32_t depth : {1u, 3u, 64u, 4096u}) {
    const auto queue = Make(depth);
    EXPECT_EQ(queue->depth(), depth);
    const size_t count = std::min<size_t>(2 * depth + 5, 600);
    const ReadMemory memory(count * kTestRead);
    auto reads = RandomReads(0, kSize[0], count, memory.data(), depth);
    for (size_t i = 0; i < count; i += 2) {
      reads[i].file = 1;
      reads[i].offset %= kSize[1] / kTestRead * kTestRead;
    }
    const auto results = RunReads(queue.get(), reads);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(results[i], static_cast<int32_t>(kTestRead)) << i;
      EXPECT_TRUE(HoldsFileBytes(reads[i], reads[i].file, kTestRead)) << i;
    }
  }
}

TEST_P(ReadQueueTest, TheSameAgain) {
  const auto queue = Make(32);
  const ReadMemory memory(40 * kTestRead);
  auto reads = RandomReads(0, kSize[0], 40, memory.data(), 21);
  for (int round = 0; round < 4; ++round) {
    // Some places are new in every round.
    for (size_t i = 0; i < reads.size(); i += 3) {
      reads[i].offset = (reads[i].offset + kTestRead) % kSize[0];
    }
    std::fill_n(memory.data(), 40 * kTestRead, 0xcc);
    const auto results = RunReads(queue.get(), reads);
    for (size_t i = 0; i < reads.size(); ++i) {
      ASSERT_EQ(results[i], static_cast<int32_t>(kTestRead)) << i;
      EXPECT_TRUE(HoldsFileBytes(reads[i], 0, kTestRead)) << i;
    }
  }
  if (GetParam().in_memory) return;
  ASSERT_EQ(::truncate(Path(0).c_str(), 0), 0);
  const auto results = RunReads(queue.get(), reads);
  EXPECT_EQ(results, std::vector<int32_t>(reads.size(), 0));
}

TEST_P(ReadQueueTest, AlignmentIsEnoughAndOffsetsNeedNoMore) {
  const auto queue = Make(8);
  const uint32_t align = queue->alignment(0);
  EXPECT_EQ(align & (align - 1), 0u);
  EXPECT_EQ(align > 1, GetParam().direct);
  const ReadMemory memory(3 * kTestRead);
  const QueuedRead read{0, align, 5 * align, memory.data() + align, 7};
  CompletedRead done;
  ASSERT_EQ(*queue->Submit({&read, 1}), 1u);
  ASSERT_EQ(*queue->Reap({&done, 1}, 1), 1u);
  EXPECT_EQ(done.tag, 7u);
  EXPECT_EQ(done.result, static_cast<int32_t>(align));
  EXPECT_TRUE(HoldsFileBytes(read, 0, align));
}

TEST_P(ReadQueueTest, TheEndOfAFileIsAShortReadThenNothing) {
  const auto queue = Make(8);
  const ReadMemory memory(2 * kTestRead);
  const uint64_t last = kSize[1] / kTestRead * kTestRead;
  const QueuedRead reads[] = {
      {1, kTestRead, last, memory.data(), 0},
      {1, kTestRead, last + kTestRead, memory.data() + kTestRead, 1}};
  const auto results = RunReads(queue.get(), reads);
  EXPECT_EQ(results[0], static_cast<int32_t>(kSize[1] - last));
  EXPECT_TRUE(HoldsFileBytes(reads[0], 1, kSize[1] - last));
  EXPECT_EQ(results[1], 0);
}

TEST_P(ReadQueueTest, AFullQueueTakesAPrefix) {
  const auto queue = Make(4);
  const ReadMemory memory(6 * kTestRead);
  const auto reads = RandomReads(0, kSize[0], 6, memory.data(), 3);
  ASSERT_EQ(*queue->Submit(reads), 4u);
  EXPECT_EQ(*queue->Submit(reads), 0u);
  CompletedRead done[6];
  ASSERT_EQ(*queue->Reap(std::span(done).first(2), 2), 2u);
  ASSERT_EQ(*queue->Submit(std::span(reads).subspan(4)), 2u);
  size_t left = 4;
  while (left > 0) left -= *queue->Reap(done, 1);
  EXPECT_EQ(*queue->Reap(done, 0), 0u);
  EXPECT_EQ(*queue->Submit({}), 0u);
}

TEST_P(ReadQueueTest, RegisteredMemoryAndOtherMemory) {
  const auto queue = Make(32);
  const ReadMemory memory(16 * kTestRead);
  const ReadMemory other(kTestRead);
  // Refusal is fine; the reads must work either way.
  queue->RegisterMemory({memory.data(), 8 * kTestRead});
  auto reads = RandomReads(0, kSize[0], 16, memory.data(), 12);
  reads[3].buffer = other.data();
  const auto results = RunReads(queue.get(), reads);
  for (size_t i = 0; i < reads.size(); ++i) {
    EXPECT_EQ(results[i], static_cast<int32_t>(kTestRead)) << i;
    EXPECT_TRUE(HoldsFileBytes(reads[i], 0, kTestRead)) << i;
  }
}

TEST_P(ReadQueueTest, AReadThatFailsIsItsOwn) {
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

TEST_P(ReadQueueTest, DestroyedWithReadsInFlight) {
  const ReadMemory memory(64 * kTestRead);
  for (int i = 0; i < 20; ++i) {
    const auto queue = Make(64);
    const auto reads = RandomReads(0, kSize[0], 64, memory.data(), 5);
    ASSERT_EQ(*queue->Submit(reads), 64u);
  }
}

TEST_P(ReadQueueTest, SubmitAndReapFromTwoThreads) {
  constexpr size_t kReads = 4000;
  constexpr uint32_t kDepth = 32;
  const auto queue = Make(kDepth);
  const ReadMemory memory(kDepth * kTestRead);
  // Which buffer a read may use is handed back by the reaping thread.
  std::mutex mutex;
  std::vector<size_t> free_buffers;
  for (size_t i = 0; i < kDepth; ++i) free_buffers.push_back(i);
  std::vector<QueuedRead> by_buffer(kDepth);
  std::atomic<size_t> submitted{0};
  std::atomic<bool> failed{false};

  std::thread submitter([&] {
    std::mt19937 rng(9);
    while (submitted < kReads && !failed) {
      std::vector<QueuedRead> batch;
      {
        const std::lock_guard lock(mutex);
        while (!free_buffers.empty() && submitted + batch.size() < kReads) {
          const size_t buffer = free_buffers.back();
          free_buffers.pop_back();
          by_buffer[buffer] = {0, kTestRead,
                               rng() % (kSize[0] / kTestRead) * kTestRead,
                               memory.data() + buffer * kTestRead, buffer};
          batch.push_back(by_buffer[buffer]);
        }
      }
      size_t taken = 0;
      while (taken < batch.size() && !failed) {
        const auto some = queue->Submit(std::span(batch).subspan(taken));
        if (!some.ok()) failed = true;
        taken += some.ok() ? *some : 0;
        submitted += some.ok() ? *some : 0;
      }
      if (batch.empty()) std::this_thread::yield();
    }
  });
  size_t reaped = 0;
  size_t wrong = 0;
  std::vector<CompletedRead> done(kDepth);
  while (reaped < kReads && !failed) {
    const bool some_in_flight = submitted > reaped;
    const auto got = queue->Reap(done, some_in_flight ? 1 : 0);
    if (!got.ok()) failed = true;
    for (size_t i = 0; got.ok() && i < *got; ++i) {
      const std::lock_guard lock(mutex);
      wrong += done[i].result != static_cast<int32_t>(kTestRead);
      wrong += !HoldsFileBytes(by_buffer[done[i].tag], 0, kTestRead);
      free_buffers.push_back(done[i].tag);
    }
    reaped += got.ok() ? *got : 0;
    if (!some_in_flight) std::this_thread::yield();
  }
  submitter.join();
  EXPECT_FALSE(failed);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(ReadQueueTest, TheSubmittingThreadMayEnd) {
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

TEST_P(ReadQueueTest, AFileCutWhileInUseReadsShort) {
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

TEST_P(ReadQueueTest, AFileReplacedByRenameStaysTheOldOne) {
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
