#include "engram/store_core.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace ecphory::engram {

namespace {

// Tickets hold the slot's index in their low bits.
constexpr uint64_t kSlotBits = 20;
constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

// The most rows of a call whose lookups may overtake those of larger calls: a
// token of five sequences with the released layout.
constexpr size_t kShortRows = 256;

// The most lookups that one call prepares at a time.
constexpr size_t kMostTogether = 64;

size_t RowsOf(std::span<const LookupRequest> requests) {
  size_t rows = 0;
  for (const LookupRequest& request : requests) rows += request.rows.size();
  return rows;
}

double SecondsSince(StoreCore::Clock::time_point start) {
  return std::chrono::duration<double>(StoreCore::Clock::now() - start).count();
}

void AddTo(StoreStats* sum, const StoreStats& more) {
  sum->lookups += more.lookups;
  sum->rows += more.rows;
  sum->cache_hits += more.cache_hits;
  sum->rows_read += more.rows_read;
  sum->reads += more.reads;
  sum->bytes_read += more.bytes_read;
  sum->read_seconds += more.read_seconds;
  sum->wait_seconds += more.wait_seconds;
}

}  // namespace

StoreCore::~StoreCore() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  service_wake_.notify_one();
  if (service_.joinable()) service_.join();
}

StoreCore::StoreCore(std::vector<TableReader> tables, StoreIo io)
    : tables_(std::move(tables)),
      scratch_(nullptr, &std::free),
      io_(std::move(io)),
      // The last: of tables that do not exist.
      counters_(tables_.size() + 1) {}

Status StoreCore::Start() {
  if (io_.queue != nullptr) ECPHORY_RETURN_IF_ERROR(AllocateReads());
  try {
    service_ = std::thread([this] { ServiceLoop(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start the Engram store's thread: %s",
                             error.what());
  }
  return {};
}

void StoreCore::ServiceLoop() {
  Lock lock(mutex_);
  for (;;) {
    service_wake_.wait(lock, [this] { return stopping_ || ServiceNeeded(); });
    if (stopping_) return;
    Progress(ViewedSlot(), &lock);
    HandOn();
  }
}

bool StoreCore::ServiceNeeded() const {
  if (ViewedSlot() != nullptr) return true;
  if (!waiting_.empty()) return false;
  return (!reaping_ && in_flight_ > 0) || (!submitting_ && CanStart());
}

void StoreCore::HandOn() {
  if (ServiceNeeded()) service_wake_.notify_one();
  if (!waiting_.empty() && !reaping_) waiting_.front()->wake.notify_one();
}

bool StoreCore::Progress(Slot* own, Lock* lock) {
  if (own != nullptr && own->backlog == &viewed_) return VisitRows(own, lock);
  if (!submitting_ && CanStart()) {
    Pump(lock);
    return true;
  }
  if (reaping_ || in_flight_ <= 0) return false;
  Reap(LeastToReap(), lock);
  return true;
}

// Waking once for several reads saves most of a wake-up's cost, but nobody may
// get his last row late: no lookup can end before as many completions as it has
// reads under way. Whoever waits takes them in by halves, so that little is
// left to decode when the last one comes. The queue must not run dry meanwhile,
// and a lookup may arrive that is shorter than all others: hence the cap.
size_t StoreCore::LeastToReap() const {
  size_t least = static_cast<size_t>(in_flight_);
  for (const auto& slot : slots_) {
    if (slot->running > 0 && !slot->cancelled) {
      least = std::min<size_t>(least, slot->running);
    }
  }
  if (!waiting_.empty()) least = (least + 1) / 2;
  return std::clamp<size_t>(least, 1, std::max<size_t>(ops_.size() / 16, 1));
}

void StoreCore::Submit(std::span<const LookupRequest> requests,
                       std::span<Ticket> tickets, ThreadPool* pool) {
  ECPHORY_CHECK(requests.size() == tickets.size());
  const Clock::time_point now = Clock::now();
  const bool few = RowsOf(requests) <= kShortRows;
  Backlog* const backlog = io_.queue == nullptr ? &viewed_
                           : few                ? &short_
                                                : &long_;
  // As many are prepared together as there are threads; a few rows take less
  // time than other threads to begin.
  const size_t together =
      few || pool == nullptr ? 1 : std::min(pool->threads(), kMostTogether);
  Slot* slots[kMostTogether];
  Lock lock(mutex_);
  for (size_t begin = 0; begin < requests.size(); begin += together) {
    const size_t count = std::min(together, requests.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      slots[i] = AcquireSlot();
      slots[i]->submitted = now;
    }
    lock.unlock();  // nobody else knows the slots
    const auto prepare = [&](size_t first, size_t end, size_t) {
      for (size_t i = first; i < end; ++i) {
        PrepareUnlocked(requests[begin + i], slots[i]);
      }
    };
    count == 1 ? prepare(0, 1, 0) : pool->ParallelFor(count, 1, prepare);
    lock.lock();
    for (size_t i = 0; i < count; ++i) {
      slots[i]->backlog = backlog;
      tickets[begin + i] = EnterSlot(slots[i], requests[begin + i]);
      // All requests of a call go to the kernel at once, unless one fills the
      // queue alone: then the disk is busy while the next one is sorted.
      const bool last = begin + i + 1 == requests.size();
      if (last || slots[i]->end >= ops_.size()) Pump(&lock);
    }
  }
  HandOn();
}

// Returns its ticket.
Ticket StoreCore::EnterSlot(Slot* slot, const LookupRequest& request) {
  const Ticket ticket = Enqueue(slot);
  StoreStats& stats = counters_[slot->table].stats;
  ++stats.lookups;
  stats.rows += request.rows.size();
  stats.cache_hits += slot->stats.cache_hits;
  stats.rows_read += slot->stats.rows_read;
  stats.bytes_read += slot->stats.bytes_read;
  return ticket;
}

void StoreCore::PrepareUnlocked(const LookupRequest& request, Slot* slot) {
  if (request.table >= tables_.size()) {
    slot->table = tables_.size();
    slot->status = InvalidArgument("table %zu was asked for, the store has %zu",
                                   request.table, tables_.size());
    return;
  }
  slot->table = request.table;
  Lookup& lookup = slot->lookup;
  slot->status = lookup.Prepare(tables_[request.table], request);
  if (slot->status.ok() && io_.cache != nullptr) {
    slot->status = lookup.TakeCached(io_.cache.get(), request.table,
                                     &slot->stats.cache_hits);
  }
  if (!slot->status.ok()) return;
  if (io_.queue != nullptr) {
    lookup.Sort();
    const ReadRules& rules = io_.rules[request.table];
    if (rules.part[0].pages != nullptr) {
      slot->stats.rows_read = lookup.TakePages(rules);
      slot->stats.bytes_read =
          slot->stats.rows_read * lookup.table().row_bytes();
    }
    slot->end = lookup.distinct_rows();
  } else {
    VisitWarmUnlocked(slot);
  }
}

StoreCore::Slot* StoreCore::AcquireSlot() {
  if (free_slots_.empty()) {
    ECPHORY_CHECK(slots_.size() < kSlotMask);
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->index = static_cast<uint32_t>(slots_.size() - 1);
    free_slots_.reserve(slots_.size());
    waiting_.reserve(slots_.size());
    short_.reserve(slots_.size());
    long_.reserve(slots_.size());
    viewed_.reserve(slots_.size());
    return slots_.back().get();
  }
  Slot* slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

StoreCore::Slot* StoreCore::FindSlot(Ticket ticket) const {
  const uint64_t index = ticket & kSlotMask;
  if (ticket == 0 || index >= slots_.size()) return nullptr;
  return slots_[index]->ticket == ticket ? slots_[index].get() : nullptr;
}

Ticket StoreCore::Enqueue(Slot* slot) {
  slot->ticket = (++calls_ << kSlotBits) | slot->index;
  if (slot->status.ok() && !broken_.ok()) slot->status = broken_;
  const bool refused = !slot->status.ok() && slot->failed == kNone;
  if (refused) slot->next = slot->end = 0;
  if (slot->done()) {
    Finish(slot);
  } else {
    Queue(slot);
  }
  return slot->ticket;
}

void StoreCore::Queue(Slot* slot) {
  if (slot->queued) return;
  slot->queued = true;
  slot->backlog->Push(slot);
}

void StoreCore::DropRest(Slot* slot) {
  slot->next = slot->end;
  if (!slot->queued) return;
  slot->queued = false;
  slot->backlog->Remove(slot);
}

void StoreCore::FailAt(Slot* slot, size_t index, Status status) {
  if (index >= slot->failed) return;
  slot->failed = index;
  slot->status = std::move(status);
  slot->end = std::min(slot->end, index);
  if (slot->next >= slot->end) DropRest(slot);
}

void StoreCore::Finish(Slot* slot) {
  slot->stats.read_seconds = SecondsSince(slot->submitted);
  TableCounters& counters = counters_[slot->table];
  counters.stats.read_seconds += slot->stats.read_seconds;
  counters.latency.Add(slot->stats.read_seconds);
  slot->wake.notify_one();
}

void StoreCore::Recycle(Slot* slot) {
  slot->lookup.Trim();
  slot->ticket = 0;
  slot->next = slot->end = 0;
  slot->merge = true;
  slot->cancelled = false;
  slot->stats = {};
  slot->failed = kNone;
  slot->status = Status();
  free_slots_.push_back(slot);
}

bool StoreCore::Ready(Ticket ticket) {
  Lock lock(mutex_);
  Slot* slot = FindSlot(ticket);
  if (slot == nullptr || slot->done()) return true;
  if (!reaping_ && in_flight_ > 0) {
    Reap(0, &lock);
    HandOn();
    slot = FindSlot(ticket);
  }
  return slot == nullptr || slot->done();
}

Status StoreCore::Wait(Ticket ticket, LookupStats* stats) {
  const Clock::time_point start = Clock::now();
  Lock lock(mutex_);
  Slot* slot = FindSlot(ticket);
  if (slot == nullptr) {
    return InvalidArgument("ticket %llu is unknown or was waited for already",
                           static_cast<unsigned long long>(ticket));
  }
  slot->ticket = 0;
  if (!slot->done()) {
    waiting_.push_back(slot);
    while (!slot->done()) {
      if (!Progress(slot, &lock)) slot->wake.wait(lock);
    }
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), slot));
    HandOn();
  }
  counters_[slot->table].stats.wait_seconds += SecondsSince(start);
  if (stats != nullptr) *stats = slot->stats;
  Status status = std::move(slot->status);
  Recycle(slot);
  return status;
}

void StoreCore::Cancel(Ticket ticket) {
  Lock lock(mutex_);
  Slot* slot = FindSlot(ticket);
  if (slot == nullptr) return;
  slot->ticket = 0;
  slot->cancelled = true;
  DropRest(slot);
  // Counted as one more read, so that the reaper does not recycle the slot
  // while this thread sleeps on it.
  ++slot->running;
  slot->wake.wait(lock, [slot] { return slot->decoding == 0; });
  if (--slot->running == 0) Recycle(slot);
}

StoreStats StoreCore::Stats(size_t table) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (table < tables_.size()) return counters_[table].stats;
  StoreStats sum;
  for (const TableCounters& counters : counters_) AddTo(&sum, counters.stats);
  return sum;
}

double StoreCore::LatencyQuantile(size_t table, double q) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_[table].latency.Quantile(q);
}

void StoreCore::ResetStats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (TableCounters& counters : counters_) counters = {};
}

}  // namespace ecphory::engram
