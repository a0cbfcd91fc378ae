// From the queue to the callers' buffers.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "engram/row_cache.h"
#include "engram/store_core.h"
#include "io/errno_status.h"

namespace ecphory::engram {

namespace {
// Tries of a read that make no progress before its row is given up. The kernel
// asks to try again when it is short of memory or a signal came in between.
constexpr uint32_t kMaxTries = 64;

bool TryAgain(int error) { return error == EINTR || error == EAGAIN; }
}  // namespace

void StoreCore::Reap(size_t least, Lock* lock) {
  reaping_ = true;
  lock->unlock();
  const Result<size_t> reaped = io_.queue->Reap(done_, least);
  lock->lock();
  if (reaped.ok()) {
    TakeIn(std::span(done_).first(*reaped));
  } else {
    Break(reaped.status());
  }
  if (!decode_.empty()) {
    lock->unlock();
    for (Op* op : decode_) DecodeUnlocked(op);
    lock->lock();
    for (Op* op : decode_) {
      --op->slot->decoding;
      FinishOp(op);
    }
    decode_.clear();
  }
  reaping_ = false;
}

void StoreCore::TakeIn(std::span<const CompletedRead> reads) {
  if (reads.empty()) return;
  in_flight_ -= static_cast<ptrdiff_t>(reads.size());
  open_reads_ -= reads.size();
  queue_full_ = false;
  for (const CompletedRead& read : reads) TakeIn(read);
}

void StoreCore::TakeIn(const CompletedRead& read) {
  Op* op = &ops_[read.tag / kMaxParts];
  const size_t part = read.tag % kMaxParts;
  const ReadRun::Extent& extent = op->run.part[part];
  if (op->slot->cancelled || op->failed) return PartDone(op);
  if (read.result < 0) {
    if (TryAgain(-read.result) && ++op->tries[part] < kMaxTries) {
      return PushRead(*op, part);
    }
    FailRead(op, part, -read.result);
    return PartDone(op);
  }
  const uint32_t count = static_cast<uint32_t>(read.result);
  const uint32_t got = op->got[part] + count;
  ECPHORY_CHECK(got <= extent.bytes);
  if (got >= extent.needed) return PartDone(op);
  // Direct reads go on where a sector begins.
  const uint32_t alignment = io_.rules[op->slot->table].part[part].alignment;
  const uint32_t whole = got & ~(alignment - 1);
  if (whole > op->got[part]) {
    op->got[part] = whole;
    op->tries[part] = 0;
    return PushRead(*op, part);
  }
  if (count > 0 && ++op->tries[part] < kMaxTries) return PushRead(*op, part);
  EndsEarly(op, part, got);
  PartDone(op);
}

// `got` bytes of a read were there. When it was none, the file may end anywhere
// before.
void StoreCore::EndsEarly(Op* op, size_t part, uint32_t got) {
  const uint64_t end = op->run.part[part].offset + got;
  const Lookup& lookup = op->slot->lookup;
  const TableReader::Part& place = lookup.table().part(part);
  size_t index = op->run.begin;
  while (place.offset + (lookup.row(index) + 1) * place.bytes <= end) ++index;
  FailOp(op, index,
         Corrupt("%s: the file ends at byte %llu%s; it was cut short after it "
                 "was opened",
                 lookup.table().PlaceName(lookup.row(index), part).c_str(),
                 static_cast<unsigned long long>(end),
                 got > 0 ? "" : " or before"));
}

void StoreCore::FailRead(Op* op, size_t part, int error) {
  Slot* slot = op->slot;
  op->failed = true;
  if (slot->merge && op->run.end - op->run.begin > 1) {
    // Which of the rows is it? Read on from here one by one.
    slot->merge = false;
    if (op->run.begin >= slot->failed) return;
    slot->next = std::min(slot->next, op->run.begin);
    return Queue(slot);
  }
  const TableReader& table = slot->lookup.table();
  FailAt(slot, op->run.begin,
         ErrnoError(
             error, "%s: cannot read",
             table.PlaceName(slot->lookup.row(op->run.begin), part).c_str()));
}

void StoreCore::FailOp(Op* op, size_t index, Status status) {
  op->failed = true;
  FailAt(op->slot, index, std::move(status));
}

void StoreCore::PartDone(Op* op) {
  if (--op->parts_left > 0) return;
  if (op->failed || op->slot->cancelled) return FinishOp(op);
  ++op->slot->decoding;
  decode_.push_back(op);
}

void StoreCore::DecodeUnlocked(Op* op) {
  const Lookup& lookup = op->slot->lookup;
  const TableReader& table = lookup.table();
  for (size_t i = op->run.begin; i < op->run.end; ++i) {
    const uint8_t* row[kMaxParts] = {};
    for (size_t p = 0; p < table.parts(); ++p) {
      const TableReader::Part& part = table.part(p);
      row[p] = op->scratch[p] + (part.offset + lookup.row(i) * part.bytes -
                                 op->run.part[p].offset);
    }
    if (!lookup.Deliver(i, row[0], row[1])) {
      op->broken = i;
      return;
    }
    // Raw rows were not looked at, and the cache holds sound rows only.
    if (io_.cache != nullptr && lookup.format() != RowFormat::kRaw) {
      Keep(op->slot->table, lookup.row(i), row[0], row[1]);
    }
  }
}

void StoreCore::Keep(size_t table, uint64_t row, const uint8_t* codes,
                     const uint8_t* scales) {
  if (tables_[table].parts() > 1) {
    (void)tables_[table].Decode(codes, scales, RowFormat::kRaw,
                                raw_row_.data());
    codes = raw_row_.data();
  }
  (void)io_.cache->Insert(table, row, codes);
}

void StoreCore::FinishOp(Op* op) {
  Slot* slot = op->slot;
  if (!op->failed) Count(*op);
  if (op->broken != kNone) {
    const Lookup& lookup = slot->lookup;
    FailAt(slot, op->broken, lookup.table().BrokenRow(lookup.row(op->broken)));
  }
  op->slot = nullptr;
  free_ops_.push_back(static_cast<size_t>(op - ops_.data()));
  --slot->running;
  if (slot->cancelled) {
    if (slot->running == 0) return Recycle(slot);
    if (slot->decoding == 0) slot->wake.notify_one();
  } else if (slot->done()) {
    Finish(slot);
  }
}

void StoreCore::Count(const Op& op) {
  Slot* slot = op.slot;
  StoreStats& stats = counters_[slot->table].stats;
  const size_t rows = op.run.end - op.run.begin;
  size_t bytes = 0;
  for (const ReadRun::Extent& extent : op.run.part) bytes += extent.bytes;
  stats.reads += slot->lookup.table().parts();
  stats.rows_read += rows;
  stats.bytes_read += bytes;
  slot->stats.rows_read += rows;
  slot->stats.bytes_read += bytes;
}

// The queue cannot tell any more which reads ended: their scratch is never used
// again, every lookup under way fails, and so does every later one.
void StoreCore::Break(const Status& status) {
  broken_ = status.WithContext("reading Engram rows has stopped");
  pending_.clear();
  open_reads_ = 0;
  in_flight_ = 0;
  for (const auto& slot : slots_) {
    if (!slot->queued && slot->running == 0) continue;
    FailAt(slot.get(), 0, broken_);
    if (slot->running == 0) Finish(slot.get());
  }
  for (Op& op : ops_) {
    Slot* slot = std::exchange(op.slot, nullptr);
    if (slot == nullptr || --slot->running > 0) continue;
    slot->cancelled ? Recycle(slot) : Finish(slot);
  }
}

}  // namespace ecphory::engram
