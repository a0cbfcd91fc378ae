#include "io/fault_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "io/pool_queue.h"
#include "io/queue_testing.h"

namespace ecphory {
namespace {

constexpr uint64_t kSize = 64 * kTestRead;

class FaultQueueTest : public ::testing::Test {
 protected:
  std::unique_ptr<FaultQueue> Make(const FaultQueuePlan& plan) {
    const auto file =
        *TableFile::Open(MakeMemoryFile("mem", FileBytes(0, kSize)));
    return MakeFaultQueue(
        std::move(MakePoolQueue({{file, false}}, {.depth = 16, .threads = 2}))
            .value(),
        plan);
  }
  // Reads of blocks 0, 1, 2, ...
  std::vector<QueuedRead> Blocks(size_t count) {
    std::vector<QueuedRead> reads(count);
    for (size_t i = 0; i < count; ++i) {
      reads[i] = {0, kTestRead, i * kTestRead, memory_.data() + i * kTestRead,
                  i};
    }
    return reads;
  }
  // Tags in the order in which they come back.
  std::vector<uint64_t> Order(FaultQueue* queue, size_t count) {
    EXPECT_EQ(*queue->Submit(Blocks(count)), count);
    std::vector<uint64_t> tags;
    while (tags.size() < count) {
      CompletedRead done[16];
      const size_t got = *queue->Reap(done, 1);
      for (size_t i = 0; i < got; ++i) tags.push_back(done[i].tag);
    }
    return tags;
  }

  const ReadMemory memory_{kSize};
};

TEST_F(FaultQueueTest, HarmlessByDefault) {
  const auto queue = Make({});
  const auto reads = Blocks(40);
  for (const int32_t result : RunReads(queue.get(), reads)) {
    EXPECT_EQ(result, static_cast<int32_t>(kTestRead));
  }
  for (const QueuedRead& read : reads) {
    EXPECT_TRUE(HoldsFileBytes(read, 0, kTestRead));
  }
  EXPECT_EQ(queue->reads(), 40u);
  EXPECT_EQ(queue->faults(), 0u);
}

TEST_F(FaultQueueTest, FailsByRangeAndByNumber) {
  FaultQueuePlan plan;
  plan.bad_begin = 2 * kTestRead - 1;
  plan.bad_end = 2 * kTestRead + 1;
  plan.fail_read = 5;
  const auto results = RunReads(Make(plan).get(), Blocks(8));
  for (size_t i = 0; i < 8; ++i) {
    const bool bad = i == 1 || i == 2 || i == 5;
    EXPECT_EQ(results[i], bad ? -EIO : static_cast<int32_t>(kTestRead)) << i;
  }
}

TEST_F(FaultQueueTest, TransientThenShortThenWhole) {
  FaultQueuePlan plan;
  plan.transient_times = 2;
  plan.transient_errno = EINTR;
  plan.short_times = 1;
  plan.short_bytes = 100;
  const auto queue = Make(plan);
  const auto reads = Blocks(1);
  EXPECT_EQ(RunReads(queue.get(), reads)[0], -EINTR);
  EXPECT_EQ(RunReads(queue.get(), reads)[0], -EINTR);
  EXPECT_EQ(RunReads(queue.get(), reads)[0], 100);
  EXPECT_TRUE(HoldsFileBytes(reads[0], 0, 100));
  EXPECT_FALSE(HoldsFileBytes(reads[0], 0, kTestRead));
  EXPECT_EQ(RunReads(queue.get(), reads)[0], static_cast<int32_t>(kTestRead));
}

TEST_F(FaultQueueTest, LosesItsTail) {
  FaultQueuePlan plan;
  plan.truncated_at = kTestRead + 10;
  const auto results = RunReads(Make(plan).get(), Blocks(3));
  EXPECT_EQ(results, (std::vector<int32_t>{kTestRead, 10, 0}));
}

TEST_F(FaultQueueTest, Reorders) {
  FaultQueuePlan plan;
  plan.reorder = true;
  plan.hold_back = 0.5;
  std::vector<uint64_t> sorted(12);
  std::iota(sorted.begin(), sorted.end(), 0);
  bool moved = false;
  for (plan.seed = 1; plan.seed < 5; ++plan.seed) {
    auto order = Order(Make(plan).get(), 12);
    moved = moved || order != sorted;
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, sorted);
  }
  EXPECT_TRUE(moved);
}

TEST_F(FaultQueueTest, HoldsBackWhatReapCanDoWithout) {
  FaultQueuePlan plan;
  plan.hold_back = 1;
  const auto queue = Make(plan);
  ASSERT_EQ(*queue->Submit(Blocks(6)), 6u);
  CompletedRead done[16];
  EXPECT_EQ(*queue->Reap(done, 2), 2u);
  EXPECT_EQ(*queue->Reap(done, 0), 0u);
  EXPECT_EQ(*queue->Reap(done, 4), 4u);
}

TEST_F(FaultQueueTest, TakesLess) {
  FaultQueuePlan plan;
  plan.submit_at_most = 3;
  plan.refuse_every = 2;
  const auto queue = Make(plan);
  const auto reads = Blocks(10);
  EXPECT_EQ(*queue->Submit(reads), 3u);  // nothing in flight yet
  EXPECT_EQ(*queue->Submit(reads), 3u);
  EXPECT_EQ(*queue->Submit(reads), 0u);
  CompletedRead done[16];
  EXPECT_EQ(*queue->Reap(done, 6), 6u);
  EXPECT_EQ(RunReads(queue.get(), reads).size(), 10u);
}

TEST_F(FaultQueueTest, CallsFail) {
  FaultQueuePlan plan;
  plan.submit_error = 1;
  plan.reap_error = 0;
  const auto queue = Make(plan);
  const auto reads = Blocks(2);
  EXPECT_EQ(*queue->Submit(std::span(reads).first(1)), 1u);
  EXPECT_EQ(queue->Submit(reads).status().code(), StatusCode::kIoError);
  CompletedRead done[16];
  EXPECT_EQ(queue->Reap(done, 1).status().code(), StatusCode::kIoError);
  EXPECT_EQ(*queue->Reap(done, 1), 1u);
}

}  // namespace
}  // namespace ecphory
