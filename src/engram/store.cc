#include "engram/store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "engram/lookup.h"
#include "engram/table_reader.h"

namespace ecphory::engram {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMaxIoThreads = 256;
// Rows that one reader takes at once: few enough that the readers finish
// together, many enough that a long lookup seldom locks.
constexpr size_t kMaxRowsTaken = 32;
constexpr size_t kNoFailure = std::numeric_limits<size_t>::max();

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// One mutex guards everything but the reads themselves. Readers sleep until the
// queue holds a lookup with rows that nobody took; a thread in Wait() takes
// rows of its own lookup first, then sleeps until the others are done.
struct Store::Impl {
  // A lookup under way. Slots are reused and never freed before the store.
  struct Slot {
    Lookup lookup;
    std::vector<uint8_t> scratch;  // of the thread in Wait()
    Ticket ticket = 0;             // 0: free, or its Wait() has begun
    Clock::time_point submitted;
    size_t next = 0;  // distinct rows [next, end) are not taken yet
    size_t end = 0;
    size_t running = 0;  // takes being read
    LookupStats stats;
    // The failed row that comes first on disk. Rows are taken in that order, so
    // that it does not depend on which reader was faster.
    size_t failed_row = kNoFailure;
    Status status;

    bool done() const { return next == end && running == 0; }
  };

  // Rows [begin, end) of a slot's lookup, for one reader.
  struct Take {
    Slot* slot;
    size_t begin;
    size_t end;
  };

  explicit Impl(std::vector<TableReader> readers) : tables(std::move(readers)) {
    for (const TableReader& table : tables) {
      scratch_bytes = std::max(scratch_bytes, table.row_bytes());
    }
  }
  ~Impl();

  Status StartThreads(uint32_t count);
  void ReadLoop(std::span<uint8_t> scratch);

  // The caller holds `mutex` in all of these.
  Slot* AcquireSlot();
  Slot* FindSlot(Ticket ticket);
  void Enqueue(Slot* slot);
  void DropRest(Slot* slot);
  Take TakeRows(Slot* slot);
  Status Release(Slot* slot);

  // Releases `lock` while it reads.
  void ReadTake(const Take& take, std::span<uint8_t> scratch,
                std::unique_lock<std::mutex>* lock);
  void AwaitReaders(Slot* slot, std::unique_lock<std::mutex>* lock);

  const std::vector<TableReader> tables;
  size_t scratch_bytes = 0;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::condition_variable work;      // the queue grew, or `stopping`
  std::condition_variable finished;  // a slot is done
  bool stopping = false;
  std::vector<std::unique_ptr<Slot>> slots;
  std::vector<Slot*> free_slots;
  std::vector<Slot*> queue;  // slots with rows to take, oldest first
  uint64_t tickets = 0;
  StoreStats stats;
  IoReport io;
};

Store::Impl::~Impl() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  work.notify_all();
  for (std::thread& thread : threads) thread.join();
}

Status Store::Impl::StartThreads(uint32_t count) {
  try {
    for (uint32_t i = 0; i < count; ++i) {
      threads.emplace_back(
          [this, scratch = std::vector<uint8_t>(scratch_bytes)]() mutable {
            ReadLoop(scratch);
          });
    }
  } catch (const std::system_error& error) {
    return ResourceExhausted(
        "cannot start %u Engram reader threads: %s; ask for fewer", count,
        error.what());
  }
  return {};
}

void Store::Impl::ReadLoop(std::span<uint8_t> scratch) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return stopping || !queue.empty(); });
    if (stopping) return;
    const Take take = TakeRows(queue.front());
    // Each reader wakes the next while there is more to do: a submitter pays
    // for one wake-up only, and rows in the page cache wake few readers.
    if (!queue.empty()) work.notify_one();
    ReadTake(take, scratch, &lock);
  }
}

Store::Impl::Slot* Store::Impl::AcquireSlot() {
  if (free_slots.empty()) {
    slots.push_back(std::make_unique<Slot>());
    slots.back()->scratch.resize(scratch_bytes);
    free_slots.reserve(slots.size());
    queue.reserve(slots.size());
    return slots.back().get();
  }
  Slot* slot = free_slots.back();
  free_slots.pop_back();
  return slot;
}

Store::Impl::Slot* Store::Impl::FindSlot(Ticket ticket) {
  for (const auto& slot : slots) {
    if (ticket != 0 && slot->ticket == ticket) return slot.get();
  }
  return nullptr;
}

void Store::Impl::Enqueue(Slot* slot) {
  slot->next = 0;
  slot->end = slot->status.ok() ? slot->lookup.distinct_rows() : 0;
  slot->failed_row = kNoFailure;
  slot->stats = {};
  slot->ticket = ++tickets;
  if (slot->done()) return;
  queue.push_back(slot);
  work.notify_one();
}

void Store::Impl::DropRest(Slot* slot) {
  if (slot->next == slot->end) return;
  slot->next = slot->end;
  queue.erase(std::find(queue.begin(), queue.end(), slot));
}

Store::Impl::Take Store::Impl::TakeRows(Slot* slot) {
  const size_t left = slot->end - slot->next;
  const size_t share = left / (2 * (threads.size() + 1));
  const size_t count = std::clamp<size_t>(share, 1, kMaxRowsTaken);
  const Take take = {slot, slot->next, slot->next + count};
  if (take.end == slot->end) {
    DropRest(slot);
  } else {
    slot->next = take.end;
  }
  ++slot->running;
  return take;
}

void Store::Impl::ReadTake(const Take& take, std::span<uint8_t> scratch,
                           std::unique_lock<std::mutex>* lock) {
  Slot* slot = take.slot;
  lock->unlock();
  size_t rows_read = 0;
  Status status = slot->lookup.Read(take.begin, take.end, scratch, &rows_read);
  lock->lock();
  const size_t bytes_read = rows_read * slot->lookup.row_bytes();
  stats.rows_read += rows_read;
  stats.bytes_read += bytes_read;
  slot->stats.rows_read += rows_read;
  slot->stats.bytes_read += bytes_read;
  if (!status.ok()) {
    DropRest(slot);
    if (take.begin + rows_read < slot->failed_row) {
      slot->failed_row = take.begin + rows_read;
      slot->status = std::move(status);
    }
  }
  --slot->running;
  if (!slot->done()) return;
  stats.read_seconds += SecondsSince(slot->submitted);
  finished.notify_all();
}

void Store::Impl::AwaitReaders(Slot* slot, std::unique_lock<std::mutex>* lock) {
  finished.wait(*lock, [slot] { return slot->done(); });
}

Status Store::Impl::Release(Slot* slot) {
  Status status = std::exchange(slot->status, Status());
  slot->lookup.Trim();
  free_slots.push_back(slot);
  return status;
}

Result<std::unique_ptr<Store>> Store::Open(std::vector<TableSource> tables,
                                           const StoreOptions& options) {
  if (options.io_threads == 0 || options.io_threads > kMaxIoThreads) {
    return InvalidArgument("%u Engram reader threads, expected 1..%u",
                           options.io_threads, kMaxIoThreads);
  }
  std::vector<TableReader> readers;
  for (TableSource& table : tables) {
    ECPHORY_ASSIGN_OR_RETURN(TableReader reader,
                             TableReader::Open(std::move(table)));
    readers.push_back(std::move(reader));
  }
  auto impl = std::make_unique<Impl>(std::move(readers));
  ECPHORY_RETURN_IF_ERROR(impl->StartThreads(options.io_threads));
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

size_t Store::tables() const { return impl_->tables.size(); }

const TableSource& Store::table(size_t index) const {
  return impl_->tables[index].source();
}

void Store::Submit(std::span<const LookupRequest> requests,
                   std::span<Ticket> tickets) {
  for (size_t i = 0; i < requests.size(); ++i) tickets[i] = Submit(requests[i]);
}

Ticket Store::Submit(const LookupRequest& request) {
  const Clock::time_point now = Clock::now();
  std::unique_lock<std::mutex> lock(impl_->mutex);
  Impl::Slot* slot = impl_->AcquireSlot();
  lock.unlock();  // sorting needs no lock: nobody else knows the slot
  slot->submitted = now;
  slot->status =
      request.table < tables()
          ? slot->lookup.Prepare(impl_->tables[request.table], request)
          : InvalidArgument("table %zu was asked for, the store has %zu",
                            request.table, tables());
  lock.lock();
  impl_->Enqueue(slot);
  ++impl_->stats.lookups;
  impl_->stats.rows += request.rows.size();
  return slot->ticket;
}

bool Store::Ready(Ticket ticket) const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  const Impl::Slot* slot = impl_->FindSlot(ticket);
  return slot == nullptr || slot->done();
}

Status Store::Wait(Ticket ticket, LookupStats* stats) {
  const Clock::time_point start = Clock::now();
  std::unique_lock<std::mutex> lock(impl_->mutex);
  Impl::Slot* slot = impl_->FindSlot(ticket);
  if (slot == nullptr) {
    return InvalidArgument("ticket %llu is unknown or was waited for already",
                           static_cast<unsigned long long>(ticket));
  }
  slot->ticket = 0;
  while (slot->next != slot->end) {
    impl_->ReadTake(impl_->TakeRows(slot), slot->scratch, &lock);
  }
  impl_->AwaitReaders(slot, &lock);
  impl_->stats.wait_seconds += SecondsSince(start);
  if (stats != nullptr) *stats = slot->stats;
  return impl_->Release(slot);
}

void Store::Cancel(Ticket ticket) {
  std::unique_lock<std::mutex> lock(impl_->mutex);
  Impl::Slot* slot = impl_->FindSlot(ticket);
  if (slot == nullptr) return;
  slot->ticket = 0;
  impl_->DropRest(slot);
  impl_->AwaitReaders(slot, &lock);
  (void)impl_->Release(slot);
}

const IoReport& Store::io() const { return impl_->io; }

StoreStats Store::table_stats(size_t) const { return stats(); }

StoreStats Store::stats() const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->stats;
}

void Store::ResetStats() {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->stats = {};
}

}  // namespace ecphory::engram
