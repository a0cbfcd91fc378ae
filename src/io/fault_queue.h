// A read queue that misbehaves on purpose, for the tests of its users.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "ecphory/status.h"
#include "io/read_queue.h"

namespace ecphory {

// What goes wrong. Faults are independent; the defaults are harmless. Reads are
// numbered from 0 in the order in which they are taken.
struct FaultQueuePlan {
  uint64_t seed = 1;
  // Reads of `bad_file` that touch a byte of [bad_begin, bad_end), and the read
  // with number `fail_read`, complete with -bad_errno.
  uint32_t bad_file = 0;
  uint64_t bad_begin = 0;
  uint64_t bad_end = 0;
  std::optional<uint64_t> fail_read = std::nullopt;
  int bad_errno = EIO;
  // The first `transient_times` reads of each place complete with
  // -transient_errno.
  uint32_t transient_times = 0;
  int transient_errno = EAGAIN;
  // The first `short_times` reads of each place that are longer bring only
  // `short_bytes`; 0 is an end of the file before the end.
  uint32_t short_times = 0;
  uint32_t short_bytes = 0;
  // The file loses its tail: reads end there, past it they bring 0.
  uint64_t truncated_at = UINT64_MAX;
  // Completions come in random order: a Reap that waits does so for all reads
  // in flight, so that the order follows from the seed alone.
  bool reorder = false;
  // A completion is held back with this probability for as long as Reap can do
  // without it.
  double hold_back = 0;
  // Submit takes at most this many, and nothing in every `refuse_every`th call
  // that finds reads in flight (0: never).
  size_t submit_at_most = SIZE_MAX;
  uint32_t refuse_every = 0;
  // The calls with these numbers, from 0, fail with kIoError.
  std::optional<uint64_t> submit_error = std::nullopt;
  std::optional<uint64_t> reap_error = std::nullopt;
};

// Its choices follow from the seed. Thread-safe as every
// ReadQueue. What a read that came short did not bring is scribbled over.
class FaultQueue : public ReadQueue {
 public:
  FaultQueue(std::unique_ptr<ReadQueue> inner, const FaultQueuePlan& plan)
      : inner_(std::move(inner)),
        plan_(plan),
        rng_(plan.seed),
        reads_(inner_->depth()) {
    for (size_t i = reads_.size(); i-- > 0;) free_.push_back(i);
  }

  const char* name() const override { return inner_->name(); }
  uint32_t depth() const override { return inner_->depth(); }
  uint32_t alignment(uint32_t file) const override {
    return inner_->alignment(file);
  }

  Result<size_t> Submit(std::span<const QueuedRead> reads) override {
    const std::lock_guard lock(mutex_);
    const uint64_t call = submits_++;
    if (plan_.submit_error == call) return IoError("injected fault in Submit");
    const bool busy = free_.size() < reads_.size();
    if (plan_.refuse_every != 0 && busy && call % plan_.refuse_every == 0) {
      return size_t{0};
    }
    size_t count = 0;
    const size_t most =
        std::min({reads.size(), free_.size(), plan_.submit_at_most});
    for (; count < most; ++count) {
      const Result<bool> taken = Start(reads[count]);
      if (!taken.ok() && count == 0) return taken.status();
      if (!taken.ok() || !*taken) break;
    }
    return count;
  }

  Result<size_t> Reap(std::span<CompletedRead> done, size_t min) override {
    {
      const std::lock_guard lock(mutex_);
      if (plan_.reap_error == reaps_++)
        return IoError("injected fault in Reap");
    }
    size_t count = 0;
    while (true) {
      ECPHORY_RETURN_IF_ERROR(
          Collect(plan_.reorder && min > 0 ? InFlight() : 0));
      count += Release(done.subspan(count), min - std::min(min, count));
      if (count >= min) return count;
      ECPHORY_RETURN_IF_ERROR(Collect(1));
    }
  }

  // Reads taken so far, and those whose results were made up or cut.
  uint64_t reads() const { return Locked(number_); }
  uint64_t faults() const { return Locked(faults_); }

 private:
  static constexpr size_t kAtOnce = 64;
  struct Read {
    QueuedRead asked;
    uint64_t most = 0;  // bytes that it brings
  };

  uint64_t Locked(const uint64_t& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  // The result that `read` gets without being read; 0: it is read.
  int32_t MadeUpError(const QueuedRead& read, uint64_t number,
                      uint32_t earlier) const {
    const bool bad = read.file == plan_.bad_file &&
                     read.offset < plan_.bad_end &&
                     read.offset + read.bytes > plan_.bad_begin;
    if (bad || plan_.fail_read == number) return -plan_.bad_errno;
    return earlier < plan_.transient_times ? -plan_.transient_errno : 0;
  }

  uint64_t MostBytes(const QueuedRead& read, uint32_t earlier) const {
    uint64_t most = read.bytes;
    if (earlier < plan_.transient_times + plan_.short_times) {
      most = std::min<uint64_t>(most, plan_.short_bytes);
    }
    const uint64_t left =
        plan_.truncated_at > read.offset ? plan_.truncated_at - read.offset : 0;
    return std::min(most, left);
  }

  Result<bool> Start(const QueuedRead& read) {
    uint32_t& earlier = times_[{read.file, read.offset}];
    const int32_t error = MadeUpError(read, number_, earlier);
    if (error != 0) {
      ++faults_;
      held_.push_back({read.tag, error});
      free_out_.push_back(free_.back());
      free_.pop_back();
    } else {
      const size_t slot = free_.back();
      QueuedRead inner = read;
      inner.tag = slot;
      ECPHORY_ASSIGN_OR_RETURN(const size_t taken, inner_->Submit({&inner, 1}));
      if (taken == 0) return false;
      free_.pop_back();
      reads_[slot] = {read, MostBytes(read, earlier)};
    }
    ++number_;
    ++earlier;
    return true;
  }

  // Of the inner queue's, at most as many as one Collect takes.
  size_t InFlight() const {
    const std::lock_guard lock(mutex_);
    return std::min(reads_.size() - free_.size() - free_out_.size(), kAtOnce);
  }

  // Takes what the inner queue has; waits for `min` unless all is here.
  Status Collect(size_t min) {
    CompletedRead some[kAtOnce];
    ECPHORY_ASSIGN_OR_RETURN(const size_t count, inner_->Reap(some, min));
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      const Read& read = reads_[some[i].tag];
      int32_t result = some[i].result;
      if (result > 0 && static_cast<uint64_t>(result) > read.most) {
        ++faults_;
        std::memset(read.asked.buffer + read.most, 0xdb,
                    static_cast<size_t>(result) - read.most);
        result = static_cast<int32_t>(read.most);
      }
      held_.push_back({read.asked.tag, result});
      free_out_.push_back(some[i].tag);
    }
    return Status::Ok();
  }

  // Hands out at least `min` of those held, or all.
  size_t Release(std::span<CompletedRead> done, size_t min) {
    const std::lock_guard lock(mutex_);
    if (plan_.reorder) std::shuffle(held_.begin(), held_.end(), rng_);
    std::bernoulli_distribution hold(plan_.hold_back);
    size_t count = 0;
    size_t kept = 0;
    for (size_t i = 0; i < held_.size(); ++i) {
      const size_t left = held_.size() - i;
      const bool needed = count + left <= min;
      if (count < done.size() && (needed || !hold(rng_))) {
        done[count++] = held_[i];
      } else {
        held_[kept++] = held_[i];
      }
    }
    held_.resize(kept);
    for (size_t i = 0; i < count; ++i) {
      free_.push_back(free_out_.back());
      free_out_.pop_back();
    }
    return count;
  }

  const std::unique_ptr<ReadQueue> inner_;
  const FaultQueuePlan plan_;
  mutable std::mutex mutex_;
  std::mt19937_64 rng_;
  std::vector<Read> reads_;       // by slot, for those in the inner queue
  std::vector<size_t> free_;      // slots not in use
  std::vector<size_t> free_out_;  // slots of what `held_` holds
  std::vector<CompletedRead> held_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> times_;
  uint64_t number_ = 0;
  uint64_t faults_ = 0;
  uint64_t submits_ = 0;
  uint64_t reaps_ = 0;
};

inline std::unique_ptr<FaultQueue> MakeFaultQueue(
    std::unique_ptr<ReadQueue> inner, const FaultQueuePlan& plan) {
  return std::make_unique<FaultQueue>(std::move(inner), plan);
}

}  // namespace ecphory
