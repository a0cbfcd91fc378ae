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

#include "base/ceil_div.h"
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

// A generation, which is that of a call, above a number of its parts. A ticket
// names a call and how many parts it has.
constexpr unsigned kPartBits = 20;
constexpr size_t kMaxParts = (size_t{1} << kPartBits) - 1;
constexpr size_t kMaxThreads = 1 << 16;
uint64_t Ticket(uint64_t generation, size_t parts) {
  return generation << kPartBits | parts;
}
size_t PartsOf(uint64_t ticket) { return ticket & kMaxParts; }
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
  void Run(size_t n, size_t grain, size_t pieces, BodyRef body);
  void RunSplit(size_t n, size_t parts, BodyRef body);
  void Publish(size_t parts);
  void WakeSleepers();
  void WorkerLoop(size_t thread);
  uint64_t AwaitTicket(uint64_t seen);
  void RunParts(uint64_t ticket, size_t thread);
  bool Claim(size_t owner, size_t pieces, uint64_t generation, size_t* piece);
  void RunPart(size_t part, size_t parts, size_t thread);
  bool AllDone(uint64_t ticket) const;
  void RunBody(BodyRef body, size_t begin, size_t end, size_t thread) const;

  // What a thread would do in a call, and what it has done: the generation of
  // the last one, how many of its parts somebody has taken, and how many parts,
  // of whomever, it has finished. Apart, because each is written by one thread
  // only if all are equally fast.
  struct Share {
    alignas(kNoSharing) std::atomic<uint64_t> taken{0};
    alignas(kNoSharing) std::atomic<uint64_t> finished{0};
  };

  const size_t threads;
  const std::chrono::nanoseconds spin;
  std::vector<Share> shares;  // of each thread
  std::mutex run_mutex;       // held for the whole of a call

  // The current call. Only read after a successful Claim of one of its parts:
  // until that part is finished the call cannot end, nor the next one begin.
  size_t job_n = 0;
  BodyRef job_body;

  alignas(kNoSharing) std::atomic<uint64_t> ticket{0};

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
      shares(n_threads) {
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

namespace {

// Equally many of each thread, or one of some, or a single one.
size_t RangesOf(size_t n, size_t grain, size_t threads, size_t pieces) {
  const size_t most = n / std::max<size_t>(grain, 1);
  if (most <= 1 || threads == 1) return 1;
  return most < threads ? most : threads * std::min(pieces, most / threads);
}

}  // namespace

void ThreadPool::Impl::Run(size_t n, size_t grain, size_t pieces,
                           BodyRef body) {
  if (n == 0) return;
  if (current_pool == this) return body(0, n, current_thread);
  const std::lock_guard<std::mutex> lock(run_mutex);
  const size_t parts = RangesOf(n, grain, threads, pieces);
  if (parts == 1) return RunBody(body, 0, n, /*thread=*/0);
  RunSplit(n, parts, body);
}

void ThreadPool::Impl::RunSplit(size_t n, size_t parts, BodyRef body) {
  job_n = n;
  job_body = body;
  Publish(parts);
  const uint64_t call = ticket.load(std::memory_order_relaxed);
  RunParts(call, /*thread=*/0);
  const auto all_done = [&] { return AllDone(call); };
  // What is left is running on a worker; when that worker lost its processor,
  // yielding may give it this one.
  if (SpinUntil(spin, all_done)) return;
  while (!all_done()) std::this_thread::yield();
}

// Each thread counts by itself: a count of all would go from one to the next,
// 0.1 us each time (Xeon, 16 threads: 2.7 us for a call that does nothing, 0.9
// like this).
bool ThreadPool::Impl::AllDone(uint64_t call) const {
  size_t finished = 0;
  for (const Share& share : shares) {
    const uint64_t value = share.finished.load(std::memory_order_acquire);
    if (GenerationOf(value) == GenerationOf(call)) finished += PartsOf(value);
  }
  return finished == PartsOf(call);
}

void ThreadPool::Impl::Publish(size_t parts) {
  const uint64_t generation =
      GenerationOf(ticket.load(std::memory_order_relaxed)) + 1;
  // Sequentially consistent against AwaitTicket: either the worker sees this
  // ticket before it sleeps, or it is counted in `sleepers` here.
  ticket.store(Ticket(generation, parts), std::memory_order_seq_cst);
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

// Own parts first, for the sake of what its cache holds from the last call over
// the same data; then whatever nobody has begun.
void ThreadPool::Impl::RunParts(uint64_t call, size_t thread) {
  const size_t parts = PartsOf(call);
  const uint64_t generation = GenerationOf(call);
  const size_t pieces = std::max<size_t>(1, parts / threads);
  const size_t owners = parts / pieces;
  size_t finished = 0;
  for (size_t i = 0; i < owners; ++i) {
    const size_t owner = (thread + i) % owners;
    for (size_t piece; Claim(owner, pieces, generation, &piece);) {
      RunPart(owner * pieces + piece, parts, thread);
      shares[thread].finished.store(Ticket(generation, ++finished),
                                    std::memory_order_release);
    }
  }
}

// A worker that comes late finds that all are taken, or a later generation.
bool ThreadPool::Impl::Claim(size_t owner, size_t pieces, uint64_t generation,
                             size_t* piece) {
  std::atomic<uint64_t>& taken = shares[owner].taken;
  uint64_t last = taken.load(std::memory_order_relaxed);
  do {
    if (GenerationOf(last) > generation) return false;
    *piece = GenerationOf(last) == generation ? PartsOf(last) : 0;
    if (*piece == pieces) return false;
  } while (!taken.compare_exchange_weak(last, Ticket(generation, *piece + 1),
                                        std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  return true;
}

void ThreadPool::Impl::RunPart(size_t part, size_t parts, size_t thread) {
  const size_t base = job_n / parts;
  const size_t extra = job_n % parts;
  // So many parts hold one more, spread evenly: a thread's are neighbours.
  const auto begin = [&](size_t i) { return i * base + i * extra / parts; };
  RunBody(job_body, begin(part), begin(part + 1), thread);
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

void ThreadPool::Run(size_t n, size_t grain, size_t pieces, BodyRef body) {
  impl_->Run(n, grain, pieces, body);
}

size_t ThreadPool::LargestPiece(size_t n, size_t grain, size_t threads) {
  return CeilDiv(n, RangesOf(n, grain, threads, kPieces));
}

}  // namespace ecphory
