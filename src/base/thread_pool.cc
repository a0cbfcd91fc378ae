#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/processors.h"

namespace ecphory {

namespace {

// How long an idle worker watches for the next call. Between two operators of a
// forward pass lie well under 20 us; a watching worker starts 0.8 us after the
// call (Zen 4, virtual machine).
constexpr std::chrono::microseconds kSpin{50};

// How long it then looks in again each time it gets the processor, which
// anybody else may have meanwhile, before it sleeps. A sleeping worker starts
// 5-10 us after the call at the very best and, where the processor slept too,
// after 0.1 to 1 ms: longer than what lies between two passes in which tokens
// are sampled and printed, so that generation never wakes anybody.
constexpr std::chrono::milliseconds kLinger{2};

// Two lines, because processors prefetch cache lines in pairs.
constexpr size_t kNoSharing = 128;

// A ticket names one call: its generation above its number of parts.
constexpr unsigned kPartBits = 16;
constexpr size_t kMaxThreads = (size_t{1} << kPartBits) - 1;
size_t PartsOf(uint64_t ticket) { return ticket & kMaxThreads; }
uint64_t GenerationOf(uint64_t ticket) { return ticket >> kPartBits; }

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as done() is; false after `limit` of watching.
template <typename Done>
bool SpinUntil(std::chrono::nanoseconds limit, const Done& done) {
  if (done()) return true;
  if (limit.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    // Reading the clock costs about as much as 16 pauses.
    for (int i = 0; i < 16; ++i) {
      CpuRelax();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// The same, leaving the processor to others between two looks.
template <typename Done>
bool YieldUntil(std::chrono::nanoseconds limit, const Done& done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    std::this_thread::yield();
    if (done()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(size_t n_threads);
  ~Impl();

  Status StartWorkers();
  Status BindWorkers(std::span<const int> processors);
  void Run(size_t n, size_t grain, BodyRef body);
  void RunSplit(size_t n, size_t parts, BodyRef body);
  void Publish(size_t parts);
  void WakeSleepers();
  void WorkerLoop(size_t thread);
  uint64_t AwaitTicket(uint64_t seen);
  void RunParts(uint64_t ticket, size_t thread);
  bool Claim(size_t part, uint64_t generation);
  void RunPart(size_t part, size_t parts, size_t thread);
  void RunBody(BodyRef body, size_t begin, size_t end, size_t thread) const;

  // The last generation in which somebody took this part.
  struct alignas(kNoSharing) Slot {
    std::atomic<uint64_t> generation{0};
  };

  const size_t threads;
  const std::chrono::nanoseconds spin;
  std::vector<Slot> slots;
  std::mutex run_mutex;  // held for the whole of a call

  // The current call. Only read after a successful Claim of one of its parts:
  // until that part is finished the call cannot end, nor the next one begin.
  size_t job_n = 0;
  BodyRef job_body;

  alignas(kNoSharing) std::atomic<uint64_t> ticket{0};
  alignas(kNoSharing) std::atomic<size_t> unfinished{0};

  alignas(kNoSharing) std::mutex sleep_mutex;
  std::condition_variable wake;
  std::atomic<size_t> sleepers{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
};

namespace {
// The body that this thread is running, to run nested calls inline.
thread_local const void* current_pool = nullptr;
thread_local size_t current_thread = 0;
}  // namespace

ThreadPool::Impl::Impl(size_t n_threads)
    : threads(n_threads),
      // With more threads than processors a spinning worker would hold up the
      // very thread that it waits for.
      spin(n_threads <= AvailableProcessors() ? kSpin : kSpin * 0),
      slots(n_threads) {
  ECPHORY_CHECK(threads >= 1 && threads <= kMaxThreads);
}

Status ThreadPool::Impl::StartWorkers() {
  workers.reserve(threads - 1);
  try {
    for (size_t thread = 1; thread < threads; ++thread) {
      workers.emplace_back([this, thread] { WorkerLoop(thread); });
    }
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start %zu threads: %s; ask for fewer",
                             threads, error.what());
  }
  return {};
}

Status ThreadPool::Impl::BindWorkers(std::span<const int> processors) {
  if (processors.empty()) return {};
  ECPHORY_CHECK(processors.size() == threads);
  for (size_t i = 0; i < workers.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(
        BindThread(workers[i].native_handle(), processors[i + 1]));
  }
  return {};
}

ThreadPool::Impl::~Impl() {
  stop.store(true);
  Publish(/*parts=*/0);
  for (std::thread& worker : workers) worker.join();
}

void ThreadPool::Impl::RunBody(BodyRef body, size_t begin, size_t end,
                               size_t thread) const {
  const void* const outer_pool = current_pool;
  const size_t outer_thread = current_thread;
  current_pool = this;
  current_thread = thread;
  body(begin, end, thread);
  current_pool = outer_pool;
  current_thread = outer_thread;
}

void ThreadPool::Impl::Run(size_t n, size_t grain, BodyRef body) {
  if (n == 0) return;
  if (current_pool == this) return body(0, n, current_thread);
  const std::lock_guard<std::mutex> lock(run_mutex);
  const size_t parts =
      std::clamp<size_t>(n / std::max<size_t>(grain, 1), 1, threads);
  if (parts == 1) return RunBody(body, 0, n, /*thread=*/0);
  RunSplit(n, parts, body);
}

void ThreadPool::Impl::RunSplit(size_t n, size_t parts, BodyRef body) {
  job_n = n;
  job_body = body;
  unfinished.store(parts, std::memory_order_relaxed);
  Publish(parts);
  RunParts(ticket.load(std::memory_order_relaxed), /*thread=*/0);
  const auto all_done = [&] {
    return unfinished.load(std::memory_order_acquire) == 0;
  };
  // What is left is running on a worker; when that worker lost its processor,
  // yielding may give it this one.
  if (SpinUntil(spin, all_done)) return;
  while (!all_done()) std::this_thread::yield();
}

void ThreadPool::Impl::Publish(size_t parts) {
  const uint64_t generation =
      GenerationOf(ticket.load(std::memory_order_relaxed)) + 1;
  // Sequentially consistent against AwaitTicket: either the worker sees this
  // ticket before it sleeps, or it is counted in `sleepers` here.
  ticket.store((generation << kPartBits) | parts, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) WakeSleepers();
}

void ThreadPool::Impl::WakeSleepers() {
  // Empty section: a worker between its last look and its wait holds the lock.
  { const std::lock_guard<std::mutex> lock(sleep_mutex); }
  wake.notify_all();
}

void ThreadPool::Impl::WorkerLoop(size_t thread) {
  uint64_t seen = 0;
  while (true) {
    seen = AwaitTicket(seen);
    if (stop.load()) return;
    RunParts(seen, thread);
  }
}

uint64_t ThreadPool::Impl::AwaitTicket(uint64_t seen) {
  const auto changed = [&] {
    return ticket.load(std::memory_order_seq_cst) != seen;
  };
  const bool watched = SpinUntil(spin, changed) ||
                       (spin.count() > 0 && YieldUntil(kLinger, changed));
  if (!watched) {
    std::unique_lock<std::mutex> lock(sleep_mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, changed);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
  return ticket.load(std::memory_order_acquire);
}

// Own part first, for the sake of what its cache holds from the last call over
// the same data; then whatever nobody has begun.
void ThreadPool::Impl::RunParts(uint64_t ticket_value, size_t thread) {
  const size_t parts = PartsOf(ticket_value);
  for (size_t i = 0; i < parts; ++i) {
    const size_t part = (thread + i) % parts;
    if (!Claim(part, GenerationOf(ticket_value))) continue;
    RunPart(part, parts, thread);
    unfinished.fetch_sub(1, std::memory_order_acq_rel);
  }
}

bool ThreadPool::Impl::Claim(size_t part, uint64_t generation) {
  std::atomic<uint64_t>& slot = slots[part].generation;
  uint64_t last = slot.load(std::memory_order_relaxed);
  // A worker that comes late finds this or a later generation: all taken.
  return last < generation && slot.compare_exchange_strong(
                                  last, generation, std::memory_order_acq_rel);
}

void ThreadPool::Impl::RunPart(size_t part, size_t parts, size_t thread) {
  const size_t base = job_n / parts;
  const size_t extra = job_n % parts;  // the first `extra` parts hold one more
  const size_t begin = part * base + std::min(part, extra);
  const size_t end = begin + base + (part < extra ? 1 : 0);
  RunBody(job_body, begin, end, thread);
}

ThreadPool::ThreadPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ThreadPool::ThreadPool(size_t threads)
    : ThreadPool(std::make_unique<Impl>(threads)) {
  ECPHORY_CHECK(impl_->StartWorkers().ok());
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(
    size_t threads, std::span<const int> processors) {
  auto impl = std::make_unique<Impl>(threads);
  ECPHORY_RETURN_IF_ERROR(impl->StartWorkers());
  ECPHORY_RETURN_IF_ERROR(impl->BindWorkers(processors));
  return std::unique_ptr<ThreadPool>(new ThreadPool(std::move(impl)));
}

ThreadPool::~ThreadPool() = default;

size_t ThreadPool::threads() const { return impl_->threads; }

void ThreadPool::Run(size_t n, size_t grain, BodyRef body) {
  impl_->Run(n, grain, body);
}

}  // namespace ecphory
