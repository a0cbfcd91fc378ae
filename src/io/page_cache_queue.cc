#include "io/page_cache_queue.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "io/cached_pages.h"
#include "io/fixed_ring.h"

namespace ecphory {

namespace {

class PageCacheQueue : public ReadQueue {
 public:
  PageCacheQueue(std::vector<QueueFile> files, std::unique_ptr<ReadQueue> inner)
      : inner_(std::move(inner)),
        depth_(inner_->depth()),
        hits_(depth_),
        misses_(depth_),
        places_(depth_),
        copied_(depth_) {
    for (const QueueFile& file : files) {
      pages_.push_back(std::make_unique<CachedPages>(file.file));
      checked_.push_back({0, false});
    }
  }

  const char* name() const override { return "buffered"; }
  uint32_t depth() const override { return depth_; }
  uint32_t alignment(uint32_t file) const override {
    return inner_->alignment(file);
  }
  bool RegisterMemory(std::span<uint8_t> memory) override {
    return inner_->RegisterMemory(memory);
  }
  CachedPages* pages(uint32_t file) override { return pages_[file].get(); }
  Result<size_t> Submit(std::span<const QueuedRead> reads) override;
  Result<size_t> Reap(std::span<CompletedRead> done, size_t min) override;

 private:
  struct Checked {
    uint64_t batch;  // when
    bool readable;
  };

  bool Readable(uint32_t file);
  // Sorts `reads` into hits_ and misses_, with the misses' places.
  void Split(std::span<const QueuedRead> reads);
  void CopyHits(std::span<const QueuedRead> hits);
  size_t CopyRun(std::span<const QueuedRead> run);

  const std::unique_ptr<ReadQueue> inner_;
  const uint32_t depth_;

  // The submitting thread's.
  std::vector<std::unique_ptr<CachedPages>> pages_;  // by file
  std::vector<Checked> checked_;                     // by file
  uint64_t batch_ = 0;
  std::vector<QueuedRead> hits_;
  std::vector<QueuedRead> misses_;
  std::vector<size_t> places_;  // of the misses among all reads
  size_t n_hits_ = 0;
  size_t n_misses_ = 0;

  std::mutex mutex_;
  FixedRing<CompletedRead> copied_;
  std::atomic<uint32_t> in_flight_{0};  // copied ones included
};

// Asks the kernel once a batch, not once a read.
bool PageCacheQueue::Readable(uint32_t file) {
  if (checked_[file].batch != batch_) {
    checked_[file] = {batch_, pages_[file]->Check()};
  }
  return checked_[file].readable;
}

void PageCacheQueue::Split(std::span<const QueuedRead> reads) {
  ++batch_;
  n_hits_ = n_misses_ = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    const QueuedRead& read = reads[i];
    if (Readable(read.file) && pages_[read.file]->Knows(read)) {
      hits_[n_hits_++] = read;
    } else {
      places_[n_misses_] = i;
      misses_[n_misses_++] = read;
    }
  }
}

// Copies reads of one file; the first that fails is to be read again.
size_t PageCacheQueue::CopyRun(std::span<const QueuedRead> run) {
  CachedPages& pages = *pages_[run[0].file];
  const size_t count = pages.Copy(run);
  const std::lock_guard lock(mutex_);
  for (const QueuedRead& read : run.first(count)) {
    copied_.Push({read.tag, static_cast<int32_t>(read.bytes)});
  }
  if (count == run.size()) return count;
  pages.ForgetAll();
  copied_.Push({run[count].tag, -EAGAIN});
  return count + 1;
}

void PageCacheQueue::CopyHits(std::span<const QueuedRead> hits) {
  if (hits.empty()) return;
  const int64_t faults = MajorFaults();
  for (size_t at = 0; at < hits.size();) {
    size_t end = at + 1;
    while (end < hits.size() && hits[end].file == hits[at].file) ++end;
    at += CopyRun(hits.subspan(at, end - at));
  }
  const int64_t waited = MajorFaults() - faults;
  for (const auto& pages : pages_) pages->ForgetIfStale(hits.size(), waited);
}

Result<size_t> PageCacheQueue::Submit(std::span<const QueuedRead> reads) {
  const uint32_t room = depth_ - in_flight_.load(std::memory_order_acquire);
  reads = reads.first(std::min<size_t>(reads.size(), room));
  if (reads.empty()) return size_t{0};
  Split(reads);
  size_t taken = 0;
  if (n_misses_ > 0) {
    const auto some = inner_->Submit(std::span(misses_).first(n_misses_));
    if (!some.ok() && places_[0] == 0) return some.status();
    taken = some.ok() ? *some : 0;
  }
  // What came after a miss that was not taken was not taken either.
  const size_t count = taken < n_misses_ ? places_[taken] : reads.size();
  in_flight_.fetch_add(static_cast<uint32_t>(count), std::memory_order_acq_rel);
  for (const QueuedRead& read : std::span(misses_).first(taken)) {
    pages_[read.file]->Remember(read);
  }
  CopyHits(std::span(hits_).first(count - taken));
  return count;
}

Result<size_t> PageCacheQueue::Reap(std::span<CompletedRead> done, size_t min) {
  ECPHORY_CHECK(min <= done.size());
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    count = std::min(done.size(), copied_.size());
    for (CompletedRead& read : done.first(count)) read = copied_.Pop();
  }
  if (count > 0) {
    in_flight_.fetch_sub(static_cast<uint32_t>(count),
                         std::memory_order_acq_rel);
  }
  const bool look =
      count < done.size() && in_flight_.load(std::memory_order_acquire) > 0;
  if (!look && count >= min) return count;
  const auto more =
      inner_->Reap(done.subspan(count), min - std::min(min, count));
  if (!more.ok() && count == 0) return more.status();
  if (!more.ok()) return count;  // the next call says why
  in_flight_.fetch_sub(static_cast<uint32_t>(*more), std::memory_order_acq_rel);
  return count + *more;
}

}  // namespace

std::unique_ptr<ReadQueue> MakePageCacheQueue(
    std::vector<QueueFile> files, std::unique_ptr<ReadQueue> inner) {
  return std::make_unique<PageCacheQueue>(std::move(files), std::move(inner));
}

}  // namespace ecphory
