// Tables that are mapped or in memory: their rows are decoded in place.
#include <algorithm>
#include <utility>

#include "engram/store_core.h"

namespace ecphory::engram {

namespace {

// Rows visited between two looks at the lookup's state: what a Cancel() may
// have to wait for.
constexpr size_t kRowsAtOnce = 256;

// A row in memory takes less, page fault included; one from disk takes more by
// far.
constexpr double kWarmSecondsPerRow = 2e-6;

}  // namespace

// A lookup that nobody waits for: whoever waits visits his own rows.
StoreCore::Slot* StoreCore::ViewedSlot() const {
  for (Slot* slot : viewed_.slots()) {
    const bool attended =
        std::find(waiting_.begin(), waiting_.end(), slot) != waiting_.end();
    if (slot->decoding == 0 && !attended) return slot;
  }
  return nullptr;
}

bool StoreCore::VisitRows(Slot* slot, Lock* lock) {
  if (slot->next == slot->end || slot->decoding > 0) return false;
  const size_t begin = slot->next;
  slot->next = std::min(begin + kRowsAtOnce, slot->end);
  const size_t end = slot->next;
  if (end == slot->end) DropRest(slot);
  ++slot->running;
  ++slot->decoding;
  lock->unlock();
  uint64_t failed = kNone;
  Status status = VisitUnlocked(slot, begin, end, &failed);
  lock->lock();
  --slot->decoding;
  --slot->running;
  FailVisit(slot, failed, std::move(status));
  const size_t bytes = (end - begin) * slot->lookup.table().row_bytes();
  slot->stats.rows_read += end - begin;
  slot->stats.bytes_read += bytes;
  StoreStats& stats = counters_[slot->table].stats;
  stats.rows_read += end - begin;
  stats.bytes_read += bytes;
  if (slot->done() && !slot->cancelled) Finish(slot);
  slot->wake.notify_one();
  return true;
}

// Rows in memory are a copy away: no other thread would be quicker.
void StoreCore::VisitWarmUnlocked(Slot* slot) {
  const size_t rows = slot->lookup.requests();
  size_t visited = 0;
  while (visited < rows && views_warm_.load(std::memory_order_relaxed)) {
    const size_t begin = visited;
    visited = std::min(begin + kRowsAtOnce, rows);
    uint64_t failed = kNone;
    Status status = VisitUnlocked(slot, begin, visited, &failed);
    FailVisit(slot, failed, std::move(status));
  }
  slot->stats.rows_read = visited;
  slot->stats.bytes_read = visited * slot->lookup.table().row_bytes();
  slot->next = visited;
  slot->end = rows;
}

Status StoreCore::VisitUnlocked(Slot* slot, size_t begin, size_t end,
                                uint64_t* failed) {
  const Clock::time_point start = Clock::now();
  Status status =
      slot->lookup.TakeViewed(io_.views[slot->table], begin, end, failed);
  const std::chrono::duration<double> taken = Clock::now() - start;
  const double warm = kWarmSecondsPerRow * static_cast<double>(end - begin);
  views_warm_.store(io_.report.mode == IoMode::kRam || taken.count() < warm,
                    std::memory_order_relaxed);
  return status;
}

void StoreCore::FailVisit(Slot* slot, uint64_t row, Status status) {
  if (status.ok() || row >= slot->failed) return;
  slot->failed = row;
  slot->status = std::move(status);
}

}  // namespace ecphory::engram
