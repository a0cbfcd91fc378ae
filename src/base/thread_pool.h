// A standing pool of worker threads for splitting one operation into ranges.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ecphory {

// Runs a function over [0, n) in contiguous ranges on `threads` threads, the
// calling thread included. The split decides only who computes what, never the
// arithmetic, so that results do not depend on the thread count.
//
// Thread-safety: one ParallelFor at a time; calls from several threads are
// serialised. A nested call from inside a body runs inline.
class ThreadPool {
 public:
  // threads >= 1; 1 starts no worker.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  // Calls body(begin, end, thread) over disjoint ranges covering [0, n);
  // `thread` < threads() identifies the worker, for per-thread scratch. Ranges
  // hold at least `grain` items, except the last. Returns when all are done.
  using Body = std::function<void(size_t begin, size_t end, size_t thread)>;
  void ParallelFor(size_t n, size_t grain, const Body& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ecphory
