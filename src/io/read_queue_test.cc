// What every read queue must do, whichever way it reads.
#include "io/read_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "io/queue_testing.h"
#include "io/read_queue_testing.h"

namespace ecphory {
namespace {

INSTANTIATE_TEST_SUITE_P(Ways, ReadQueueTest, ::testing::ValuesIn(kWays),
                         WayName);

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

}  // namespace
}  // namespace ecphory
