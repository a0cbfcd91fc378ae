// From backlogs to the queue.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "engram/store_core.h"

namespace ecphory::engram {

namespace {

// One in this many runs is taken from the long lookups while short ones wait:
// neither kind can starve the other.
constexpr uint32_t kTurns = 4;

// A token's latency counts, so submitters leave further work to the reaper.
constexpr int kMaxRounds = 2;

}  // namespace

Status StoreCore::AllocateReads() {
  ops_.resize(io_.queue->depth());
  size_t part_bytes[kMaxParts] = {};
  size_t row_bytes = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    row_bytes = std::max(row_bytes, tables_[t].row_bytes());
    parts_ = std::max(parts_, tables_[t].parts());
    for (size_t p = 0; p < kMaxParts; ++p) {
      part_bytes[p] =
          std::max<size_t>(part_bytes[p], io_.rules[t].part[p].max_bytes);
    }
  }
  const size_t op_bytes = part_bytes[0] + part_bytes[1];
  const size_t scratch_bytes = ops_.size() * op_bytes;
  scratch_.reset(static_cast<uint8_t*>(
      std::aligned_alloc(io_.scratch_alignment, scratch_bytes)));
  if (scratch_ == nullptr) {
    return ResourceExhausted(
        "%zu Engram reads of %zu bytes in flight: no memory for them (a "
        "smaller depth needs less)",
        ops_.size(), op_bytes);
  }
  (void)io_.queue->RegisterMemory({scratch_.get(), scratch_bytes});
  for (size_t i = ops_.size(); i-- > 0;) {
    free_ops_.push_back(i);
    ops_[i].scratch[0] = scratch_.get() + i * op_bytes;
    ops_[i].scratch[1] = ops_[i].scratch[0] + part_bytes[0];
  }
  const size_t most_reads = ops_.size() * kMaxParts;
  pending_.reserve(most_reads);
  batch_.reserve(most_reads);
  done_.resize(most_reads);
  decode_.reserve(ops_.size());
  raw_row_.resize(row_bytes);
  return {};
}

void StoreCore::Backlog::Remove(Slot* slot) {
  slots_.erase(std::find(slots_.begin(), slots_.end(), slot));
}

bool StoreCore::CanStart() const {
  return !queue_full_ && (!pending_.empty() || CanStartRun());
}

bool StoreCore::CanStartRun() const {
  if (free_ops_.empty() || (short_.empty() && long_.empty())) return false;
  // All reads of a run or none; a queue of depth 1 takes those of a pair in
  // turn.
  return open_reads_ == 0 || open_reads_ + parts_ <= io_.queue->depth();
}

StoreCore::Backlog* StoreCore::NextBacklog() {
  if (short_.empty()) return &long_;
  if (long_.empty()) return &short_;
  return ++turn_ % kTurns == 0 ? &long_ : &short_;
}

void StoreCore::Fill() {
  while (CanStartRun()) StartRun(NextBacklog()->front());
}

void StoreCore::StartRun(Slot* slot) {
  const size_t index = free_ops_.back();
  free_ops_.pop_back();
  Op& op = ops_[index];
  op.slot = slot;
  op.run = slot->lookup.RunAt(slot->next, slot->end, io_.rules[slot->table],
                              slot->merge);
  op.failed = false;
  op.broken = kNone;
  op.parts_left = static_cast<uint32_t>(slot->lookup.table().parts());
  for (size_t p = 0; p < op.parts_left; ++p) {
    op.got[p] = op.tries[p] = 0;
    PushRead(op, p);
  }
  ++slot->running;
  slot->next = op.run.end;
  if (slot->next == slot->end) DropRest(slot);
}

void StoreCore::PushRead(const Op& op, size_t part) {
  const ReadRun::Extent& extent = op.run.part[part];
  const uint32_t got = op.got[part];
  pending_.push_back(
      {.file = io_.rules[op.slot->table].part[part].file,
       .bytes = extent.bytes - got,
       .offset = extent.offset + got,
       .buffer = op.scratch[part] + got,
       .tag = static_cast<size_t>(&op - ops_.data()) * kMaxParts + part});
  ++open_reads_;
}

void StoreCore::Pump(Lock* lock) {
  if (submitting_) return;  // whoever submits looks again before he leaves
  submitting_ = true;
  for (int round = 0; round < kMaxRounds || in_flight_ <= 0; ++round) {
    Fill();
    if (!CanStart()) break;
    batch_.swap(pending_);
    const bool was_idle = in_flight_ <= 0;
    lock->unlock();
    const Result<size_t> taken = io_.queue->Submit(batch_);
    lock->lock();
    Accept(taken, was_idle);
  }
  submitting_ = false;
}

void StoreCore::Accept(const Result<size_t>& taken, bool was_idle) {
  const size_t count = taken.ok() ? *taken : 0;
  in_flight_ += static_cast<ptrdiff_t>(count);
  const std::span<const QueuedRead> left = std::span(batch_).subspan(count);
  if (!broken_.ok()) {
    in_flight_ = 0;  // as Break() left it
  } else if (!taken.ok() || (count == 0 && was_idle && in_flight_ <= 0)) {
    Refuse(left, taken.ok() ? IoError("%s takes no reads", io_.queue->name())
                            : taken.status());
  } else if (!left.empty()) {
    pending_.insert(pending_.begin(), left.begin(), left.end());
    queue_full_ = in_flight_ > 0;  // until one is reaped
  }
  batch_.clear();
}

void StoreCore::Refuse(std::span<const QueuedRead> reads,
                       const Status& status) {
  open_reads_ -= reads.size();
  for (const QueuedRead& read : reads) {
    Op& op = ops_[read.tag / kMaxParts];
    FailOp(&op, op.run.begin,
           status.WithContext(op.slot->lookup.table().PlaceName(
               op.slot->lookup.row(op.run.begin), read.tag % kMaxParts)));
    PartDone(&op);
  }
}

}  // namespace ecphory::engram
