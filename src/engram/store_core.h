// The heart of the store: who starts reads, who takes them in, who waits.
//
// There is one queue of reads. Whoever calls Submit() fills it himself. Whoever
// waits takes completions in for everybody (the *reaper*, one thread at a
// time), decodes them, refills the queue and hands the role on when his own
// lookup is done. One standing thread reaps when nobody waits.
//
// One mutex guards everything; it is held neither in a call of the queue nor
// while rows are decoded.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/histogram.h"
#include "ecphory/status.h"
#include "engram/lookup.h"
#include "engram/store.h"
#include "engram/store_io.h"
#include "engram/table_reader.h"

namespace ecphory::engram {

class StoreCore {
 public:
  using Clock = std::chrono::steady_clock;

  StoreCore(std::vector<TableReader> tables, StoreIo io);
  ~StoreCore();
  // Once, before anything else. kResourceExhausted when memory or the thread is
  // refused.
  Status Start();

  void Submit(std::span<const LookupRequest> requests,
              std::span<Ticket> tickets, ThreadPool* pool);
  bool Ready(Ticket ticket);
  Status Wait(Ticket ticket, LookupStats* stats);
  void Cancel(Ticket ticket);

  const std::vector<TableReader>& tables() const { return tables_; }
  const IoReport& report() const { return io_.report; }
  StoreStats Stats(size_t table) const;
  double LatencyQuantile(size_t table, double q) const;
  void ResetStats();

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  struct Slot;

  // Lookups with rows to read, oldest first.
  class Backlog {
   public:
    bool empty() const { return slots_.empty(); }
    Slot* front() const { return slots_.front(); }
    std::span<Slot* const> slots() const { return slots_; }
    void reserve(size_t size) { slots_.reserve(size); }
    void Push(Slot* slot) { slots_.push_back(slot); }
    void Remove(Slot* slot);

   private:
    std::vector<Slot*> slots_;
  };

  // A lookup under way. Slots are reused and never freed before the store.
  struct Slot {
    Lookup lookup;
    uint32_t index = 0;  // in slots_
    size_t table = 0;
    Ticket ticket = 0;  // 0: free, or forgotten by its caller
    Clock::time_point submitted;
    // Distinct rows [next, end) have no read yet. A failure draws `end` in.
    size_t next = 0;
    size_t end = 0;
    uint32_t running = 0;        // reads (ops) under way
    uint32_t decoding = 0;       // of these: being written to `out`
    Backlog* backlog = nullptr;  // where it waits for reads
    bool queued = false;         // it is there
    bool merge = true;           // neighbouring rows share a read
    bool cancelled = false;
    LookupStats stats;
    // The first that failed: an index of a distinct row, a row number with
    // views.
    size_t failed = kNone;
    Status status;
    std::condition_variable wake;  // of its Wait() or Cancel()

    bool done() const { return next == end && running == 0; }
  };

  // A run of rows under way: a read of each part into scratch of its own.
  struct Op {
    Slot* slot = nullptr;
    ReadRun run;
    uint8_t* scratch[kMaxParts] = {};
    uint32_t got[kMaxParts] = {};    // bytes of each part read so far
    uint32_t tries[kMaxParts] = {};  // without progress
    uint32_t parts_left = 0;
    bool failed = false;
    size_t broken = kNone;  // the first row that did not decode
  };

  // All of these: the caller holds the mutex; those that take `lock` release it
  // on their way.

  // Slots (store_core.cc).
  Slot* AcquireSlot();
  Slot* FindSlot(Ticket ticket) const;
  Ticket Enqueue(Slot* slot);
  Ticket EnterSlot(Slot* slot, const LookupRequest& request);
  void Queue(Slot* slot);
  void DropRest(Slot* slot);
  void FailAt(Slot* slot, size_t index, Status status);
  void Finish(Slot* slot);
  void Recycle(Slot* slot);
  void PrepareUnlocked(const LookupRequest& request, Slot* slot);
  // Roles (store_core.cc).
  bool Progress(Slot* own, Lock* lock);
  void HandOn();
  bool ServiceNeeded() const;
  size_t LeastToReap() const;
  void ServiceLoop();

  // Tables that are looked at in place (store_views.cc).
  Slot* ViewedSlot() const;
  bool VisitRows(Slot* slot, Lock* lock);
  void VisitWarmUnlocked(Slot* slot);
  Status VisitUnlocked(Slot* slot, size_t begin, size_t end, uint64_t* failed);
  static void FailVisit(Slot* slot, uint64_t row, Status status);
  // Starting reads (store_reads.cc).
  Status AllocateReads();
  bool CanStart() const;
  bool CanStartRun() const;
  void Pump(Lock* lock);
  void Fill();
  Backlog* NextBacklog();
  void StartRun(Slot* slot);
  void PushRead(const Op& op, size_t part);
  void Accept(const Result<size_t>& taken, bool was_idle);
  void Refuse(std::span<const QueuedRead> reads, const Status& status);
  // Taking them in (store_completions.cc).
  void Reap(size_t least, Lock* lock);
  void TakeIn(std::span<const CompletedRead> reads);
  void TakeIn(const CompletedRead& read);
  void EndsEarly(Op* op, size_t part, uint32_t got);
  void FailRead(Op* op, size_t part, int error);
  void FailOp(Op* op, size_t index, Status status);
  void PartDone(Op* op);
  void DecodeUnlocked(Op* op);
  void Keep(size_t table, uint64_t row, const uint8_t* codes,
            const uint8_t* scales);
  void FinishOp(Op* op);
  void Count(const Op& op);
  void Break(const Status& status);

  const std::vector<TableReader> tables_;
  size_t parts_ = 1;  // the most that a table has
  // Of all ops. Outlives the queue, which may still be writing to it.
  std::unique_ptr<uint8_t, decltype(&std::free)> scratch_;
  StoreIo io_;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  uint64_t calls_ = 0;          // makes tickets unique
  std::vector<Slot*> waiting_;  // in Wait() and not done, oldest first

  std::vector<Op> ops_;
  std::vector<size_t> free_ops_;
  Backlog short_;  // lookups of calls with few rows
  Backlog long_;
  Backlog viewed_;  // lookups of tables with a view
  // Whether the last rows visited were in memory.
  std::atomic<bool> views_warm_{true};
  uint32_t turn_ = 0;
  std::vector<QueuedRead> pending_;  // made, not taken by the queue
  size_t open_reads_ = 0;            // made and not reaped
  ptrdiff_t in_flight_ = 0;          // taken by the queue minus reaped
  bool queue_full_ = false;          // it takes no more before one is reaped
  Status broken_;  // of the queue itself: nothing can be read any more

  bool submitting_ = false;          // somebody is in io_.queue->Submit
  std::vector<QueuedRead> batch_;    // his
  bool reaping_ = false;             // somebody is the reaper
  std::vector<CompletedRead> done_;  // his
  std::vector<Op*> decode_;          // his
  std::vector<uint8_t> raw_row_;     // his, for the cache

  std::condition_variable service_wake_;
  bool stopping_ = false;
  std::thread service_;

  struct TableCounters {
    StoreStats stats;
    DurationHistogram latency;
  };
  std::vector<TableCounters> counters_;
};

}  // namespace ecphory::engram
