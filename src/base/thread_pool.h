// A standing pool of worker threads for splitting one operation into ranges.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ecphory/status.h"

namespace ecphory {

// Runs a function over [0, n) in contiguous ranges on `threads` threads, the
// calling thread included. The split decides only who computes what, never the
// arithmetic, so that results do not depend on the thread count.
//
// Workers spin briefly for the next call, then sleep. A range whose worker is
// not there yet is taken over by the caller, so that a call never waits for a
// sleeping or descheduled thread that has not begun.
//
// Thread-safety: one ParallelFor at a time; calls from several threads are
// serialised. A nested call from inside a body runs inline.
class ThreadPool {
 public:
  // threads >= 1; 1 starts no worker. Worker i is bound to processors[i] where
  // the list is not empty, and then holds `threads` entries; the first stands
  // for the calling threads, which bind themselves (ThreadBinding).
  // kResourceExhausted when the system refuses a thread, kInvalidArgument when
  // it refuses a processor.
  static Result<std::unique_ptr<ThreadPool>> Create(
      size_t threads, std::span<const int> processors = {});
  // For tests: a refused thread ends the process.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  // Calls body(begin, end, thread) over disjoint ranges covering [0, n);
  // `thread` < threads() identifies who runs it, for per-thread scratch: at
  // most one range at a time, but possibly several per call. Ranges hold at
  // least `grain` items unless n is smaller. Returns when all are done. Does
  // not allocate; `body` must not throw.
  template <typename Body>
  void ParallelFor(size_t n, size_t grain, const Body& body) {
    Run(n, grain, /*pieces=*/1, {&body, &CallBody<Body>});
  }

  // The same in up to kPieces ranges a thread, one behind the other; ranges
  // that their thread has not begun when others are done are taken over by
  // these. For long loops whose ranges cost little to begin: the processors of
  // a virtual machine may differ in speed by more than two, and no part of a
  // call should wait for the slowest of them.
  template <typename Body>
  void ParallelForPieces(size_t n, size_t grain, const Body& body) {
    Run(n, grain, kPieces, {&body, &CallBody<Body>});
  }
  // Items of the largest range that ParallelForPieces() hands out, called by
  // none of the pool's own threads: what scratch of a range is planned by.
  static size_t LargestPiece(size_t n, size_t grain, size_t threads);

 private:
  // A borrowed callable: std::function would allocate for most captures.
  struct BodyRef {
    const void* body = nullptr;
    void (*call)(const void*, size_t, size_t, size_t) = nullptr;
    void operator()(size_t begin, size_t end, size_t thread) const {
      call(body, begin, end, thread);
    }
  };
  template <typename Body>
  static void CallBody(const void* body, size_t begin, size_t end,
                       size_t thread) {
    (*static_cast<const Body*>(body))(begin, end, thread);
  }
  // A thread that is slow holds up the others by a piece at most, an eighth of
  // its share; more cost more to begin than they gain (Xeon, 16 threads).
  static constexpr size_t kPieces = 8;
  void Run(size_t n, size_t grain, size_t pieces, BodyRef body);

  struct Impl;
  explicit ThreadPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ecphory
