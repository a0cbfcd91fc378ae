// How soon the pool's workers begin, and what a split costs: when one call
// follows the other, after a pause as between two passes, and when workers have
// gone to sleep.
//
//   pool_bench [THREADS] [PROCESSORS]
//
// PROCESSORS: a list to bind threads to, such as 0-1.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/processors.h"
#include "base/thread_pool.h"

namespace ecphory {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<double>;  // microseconds

constexpr int kCalls = 2000;
// As between two passes of a generation, and long after workers went to sleep.
constexpr std::chrono::microseconds kPause{500};
constexpr std::chrono::milliseconds kLongPause{10};

double Since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

// From the call to the first worker's first instruction. The caller's own part
// waits for it, so that it is not done by the caller before a worker comes.
double Start(ThreadPool& pool) {
  std::atomic<double> started{-1};
  const auto begin = Clock::now();
  pool.ParallelFor(pool.threads(), 1, [&](size_t, size_t, size_t thread) {
    if (thread == 0) {
      while (started < 0 && Since(begin) < 10'000) {
      }
      return;
    }
    double none = -1;
    started.compare_exchange_strong(none, Since(begin));
  });
  return started;
}

// A call whose parts are empty.
double Call(ThreadPool& pool) {
  const auto begin = Clock::now();
  pool.ParallelFor(pool.threads(), 1, [](size_t, size_t, size_t) {});
  return Since(begin);
}

template <typename Measure>
void Report(const char* what, std::chrono::microseconds pause, int calls,
            const Measure& measure) {
  Times times;
  for (int i = 0; i < calls; ++i) {
    // Busy, as a caller is that samples: a sleeping one would be woken first.
    for (const auto begin = Clock::now(); Since(begin) < pause.count();) {
    }
    const double time = measure();
    if (time >= 0) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share *
                                     static_cast<double>(times.size() - 1))];
  };
  std::printf("%-34s p5 %7.2f us, median %7.2f us, p95 %7.2f us (%zu)\n", what,
              at(0.05), at(0.5), at(0.95), times.size());
}

int Run(int argc, char** argv) {
  const size_t threads =
      argc > 1 ? std::strtoul(argv[1], nullptr, 10) : AvailableProcessors();
  std::vector<int> processors;
  if (argc > 2) {
    auto list = ParseProcessorList(argv[2], AllowedProcessors());
    if (list.ok()) processors = *list;
    if (!list.ok() || processors.size() != threads) {
      std::fprintf(stderr,
                   "pool_bench: PROCESSORS must be %zu of this machine\n",
                   threads);
      return 2;
    }
  }
  const auto pool = ThreadPool::Create(threads, processors);
  if (!pool.ok() || threads < 2) {
    std::fprintf(stderr, "pool_bench: expected 2 threads or more\n");
    return 2;
  }
  if (!processors.empty()) (void)BindThread(pthread_self(), processors[0]);
  const auto start = [&] { return Start(**pool); };
  const auto call = [&] { return Call(**pool); };
  constexpr std::chrono::microseconds kNone{0};
  Report("worker starts, at once", kNone, kCalls, start);
  Report("worker starts, after 0.5 ms", kPause, kCalls / 10, start);
  Report("worker starts, after 10 ms", kLongPause, kCalls / 10, start);
  Report("empty call, at once", kNone, kCalls, call);
  Report("empty call, after 0.5 ms", kPause, kCalls / 10, call);
  Report("empty call, after 10 ms", kLongPause, kCalls / 10, call);
  return 0;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) { return ecphory::Run(argc, argv); }
