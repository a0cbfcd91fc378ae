// Tables that are mapped or in memory: their rows are decoded in place.
#include <algorithm>
#include <utility>

#include "engram/store_core.h"

namespace ecphory::engram {

namespace {
// Rows visited between two looks at the lookup's state: what a Cancel() may
// have to wait for.
constexpr size_t kRowsAtOnce = 64;
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
  uint64_t failed = 0;
  Status status =
      slot->lookup.TakeViewed(io_.views[slot->table], begin, end, &failed);
  lock->lock();
  --slot->decoding;
  --slot->running;
  const size_t bytes = (end - begin) * slot->lookup.table().row_bytes();
  slot->stats.rows_read += end - begin;
  slot->stats.bytes_read += bytes;
  counters_[slot->table].stats.rows_read += end - begin;
  counters_[slot->table].stats.bytes_read += bytes;
  if (!status.ok() && failed < slot->failed) {
    slot->failed = failed;
    slot->status = std::move(status);
  }
  if (slot->done() && !slot->cancelled) Finish(slot);
  slot->wake.notify_one();
  return true;
}

void StoreCore::VisitNowUnlocked(Slot* slot) {
  uint64_t failed = 0;
  Lookup& lookup = slot->lookup;
  const size_t rows = lookup.requests();
  slot->status = lookup.TakeViewed(io_.views[slot->table], 0, rows, &failed);
  slot->stats.rows_read = rows;
  slot->stats.bytes_read = rows * lookup.table().row_bytes();
}

}  // namespace ecphory::engram
