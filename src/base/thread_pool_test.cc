#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace ecphory {
namespace {

struct Range {
  size_t begin, end, thread;
};

std::vector<Range> RangesOf(ThreadPool& pool, size_t n, size_t grain,
                            bool pieces) {
  std::vector<Range> ranges(8 * pool.threads() + 1);
  std::atomic<size_t> count{0};
  const auto body = [&](size_t begin, size_t end, size_t thread) {
    ranges.at(count.fetch_add(1)) = {begin, end, thread};
  };
  pieces ? pool.ParallelForPieces(n, grain, body)
         : pool.ParallelFor(n, grain, body);
  EXPECT_LE(count.load(), (pieces ? 8 : 1) * pool.threads());
  ranges.resize(count.load());
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

TEST(ThreadPool, RangesCoverEverythingOnce) {
  for (const size_t threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const size_t n : {0, 1, 2, 3, 5, 16, 101}) {
      for (const size_t grain : {0, 1, 2, 10, 1000}) {
        for (const bool pieces : {false, true}) {
          size_t next = 0;
          for (const Range& range : RangesOf(pool, n, grain, pieces)) {
            EXPECT_EQ(range.begin, next);
            EXPECT_LT(range.begin, range.end);
            EXPECT_GE(range.end - range.begin, std::min(n, grain));
            EXPECT_LT(range.thread, threads);
            next = range.end;
          }
          EXPECT_EQ(next, n);
        }
      }
    }
  }
}

TEST(ThreadPool, PiecesOfAllThreadsHoldTheSame) {
  ThreadPool pool(3);
  const std::vector<Range> pieces = RangesOf(pool, 60, 1, /*pieces=*/true);
  ASSERT_EQ(pieces.size(), 24u);
  EXPECT_EQ(pieces[8].begin, 20u);
  EXPECT_EQ(pieces[16].begin, 40u);
}

TEST(ThreadPool, LargestPieceIsThatOfTheRanges) {
  for (const size_t threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const size_t n : {1, 2, 3, 5, 16, 101, 1000}) {
      for (const size_t grain : {0, 1, 2, 10, 1000}) {
        size_t largest = 0;
        for (const Range& range : RangesOf(pool, n, grain, /*pieces=*/true)) {
          largest = std::max(largest, range.end - range.begin);
        }
        EXPECT_EQ(ThreadPool::LargestPiece(n, grain, threads), largest)
            << n << " by " << grain << ", " << threads << " threads";
      }
    }
  }
}

TEST(ThreadPool, EveryCallSeesTheWritesOfTheOneBefore) {
  ThreadPool pool(4);
  std::vector<int> values(64, 0);
  for (int call = 0; call < 2000; ++call) {
    pool.ParallelFor(values.size(), 1, [&](size_t begin, size_t end, size_t) {
      for (size_t i = begin; i < end; ++i) {
        EXPECT_EQ(values[values.size() - 1 - i] >= call, true);
      }
    });
    pool.ParallelFor(values.size(), 1, [&](size_t begin, size_t end, size_t) {
      for (size_t i = begin; i < end; ++i) ++values[i];
    });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 64 * 2000);
}

TEST(ThreadPool, OneRangeAtATimePerThreadIndex) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> busy(3);
  for (int call = 0; call < 200; ++call) {
    pool.ParallelFor(3, 1, [&](size_t, size_t, size_t thread) {
      EXPECT_EQ(busy[thread].fetch_add(1), 0);
      std::this_thread::yield();
      busy[thread].fetch_sub(1);
    });
  }
}

TEST(ThreadPool, PiecesOfASlowThreadAreTakenOver) {
  ThreadPool pool(2);
  std::atomic<int> ranges_of[2] = {0, 0};
  pool.ParallelForPieces(16, 1, [&](size_t, size_t, size_t thread) {
    ++ranges_of[thread];
    std::this_thread::sleep_for(
        std::chrono::milliseconds(thread == 1 ? 30 : 1));
  });
  EXPECT_EQ(ranges_of[0] + ranges_of[1], 16);
  EXPECT_GT(ranges_of[0], 8);
}

TEST(ThreadPool, NestedCallRunsInlineOnTheSameThread) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  pool.ParallelFor(3, 1, [&](size_t, size_t, size_t outer) {
    pool.ParallelFor(10, 1, [&](size_t begin, size_t end, size_t inner) {
      EXPECT_EQ(begin, 0u);
      EXPECT_EQ(end, 10u);
      EXPECT_EQ(inner, outer);
      ++calls;
    });
  });
  EXPECT_EQ(calls.load(), 3);
}

TEST(ThreadPool, NestedCallRunsInlineInASingleRangeToo) {
  ThreadPool pool(2);
  int calls = 0;
  pool.ParallelFor(1, 1, [&](size_t, size_t, size_t) {
    pool.ParallelFor(8, 1, [&](size_t, size_t end, size_t) { calls += end; });
  });
  EXPECT_EQ(calls, 8);
}

TEST(ThreadPool, AnotherPoolInsideABodySplitsAsUsual) {
  ThreadPool outer(2);
  ThreadPool inner(2);
  std::atomic<size_t> items{0};
  outer.ParallelFor(2, 1, [&](size_t, size_t, size_t) {
    inner.ParallelFor(
        10, 1, [&](size_t begin, size_t end, size_t) { items += end - begin; });
  });
  EXPECT_EQ(items.load(), 20u);
}

TEST(ThreadPool, CallersFromSeveralThreadsTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  std::vector<int> sums(3, 0);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 200; ++i) {
        pool.ParallelFor(1, 1, [&](size_t, size_t, size_t) {
          EXPECT_EQ(inside.fetch_add(1), 0);
          ++sums[caller];
          inside.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<int>(3, 200));
}

TEST(ThreadPool, WakesSleepingWorkersAndStopsThem) {
  for (int round = 0; round < 3; ++round) {
    ThreadPool pool(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(RangesOf(pool, 300, 1, /*pieces=*/false).size(), 3u);
  }
}

TEST(ThreadPool, ARefusedThreadIsAnError) {
  pthread_attr_t usual, too_large;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&too_large), 0);
  // A stack beyond any address space.
  ASSERT_EQ(pthread_attr_setstacksize(&too_large, size_t{1} << 58), 0);
  ASSERT_EQ(pthread_setattr_default_np(&too_large), 0);
  const auto refused = ThreadPool::Create(4);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(ThreadPool::Create(4).ok());
}

// The caller may take over a range, but a worker that is free must help.
TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.ParallelFor(2, 1, [&](size_t, size_t, size_t) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

}  // namespace
}  // namespace ecphory
