#include "io/cached_pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/bus_guard.h"

namespace ecphory {

namespace {
// Larger pages than the kernel's own would be fine, too: a page is only what
// one bit stands for.
constexpr uint64_t kPage = 4096;
constexpr uint64_t kWordBits = 64;

// Reads ahead of the one that is copied whose memory is asked for: what it
// takes to come is a few copies long.
constexpr size_t kAhead = 8;

// Reads that would wait, one after the other, before the rest of a call is
// taken to be on disk as well.
constexpr int kPatience = 4;

void Prefetch(const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; i += 64) __builtin_prefetch(bytes + i);
}

std::atomic_ref<uint64_t> Word(uint64_t* words, uint64_t page) {
  return std::atomic_ref<uint64_t>(words[page / kWordBits]);
}
}  // namespace

int64_t MajorFaults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

CachedPages::CachedPages(std::shared_ptr<const TableFile> file)
    : file_(std::move(file)) {
  if (file_->buffered() < 0 || file_->size() == 0) return;
  if (!InstallBusGuard().ok()) return;
  words_ = static_cast<size_t>(file_->size() / kPage / kWordBits + 1);
  known_.reset(static_cast<uint64_t*>(std::calloc(words_, sizeof(uint64_t))));
  void* base = ::mmap(nullptr, file_->size(), PROT_READ, MAP_SHARED,
                      file_->buffered(), 0);
  if (known_ == nullptr || base == MAP_FAILED) return;
  ::madvise(base, file_->size(), MADV_RANDOM);
  bytes_ = {static_cast<const uint8_t*>(base),
            static_cast<size_t>(file_->size())};
}

CachedPages::~CachedPages() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

bool CachedPages::Check() {
  if (bytes_.empty()) return false;
  if (file_->CheckSize().ok()) return true;
  ForgetAll();
  return false;
}

bool CachedPages::InFile(const QueuedRead& read) const {
  return read.offset < bytes_.size() && read.bytes > 0 &&
         read.bytes <= bytes_.size() - read.offset;
}

bool CachedPages::Knows(const QueuedRead& read) const {
  if (!InFile(read)) return false;
  const uint64_t last = (read.offset + read.bytes - 1) / kPage;
  for (uint64_t page = read.offset / kPage; page <= last; ++page) {
    const uint64_t word =
        Word(known_.get(), page).load(std::memory_order_relaxed);
    if ((word >> (page % kWordBits) & 1) == 0) return false;
  }
  return true;
}

void CachedPages::Remember(const QueuedRead& read) {
  if (!InFile(read)) return;
  const uint64_t last = (read.offset + read.bytes - 1) / kPage;
  for (uint64_t page = read.offset / kPage; page <= last; ++page) {
    Word(known_.get(), page)
        .fetch_or(uint64_t{1} << (page % kWordBits), std::memory_order_relaxed);
  }
}

void CachedPages::ForgetAll() {
  if (known_ == nullptr) return;
  for (size_t i = 0; i < words_; ++i) {
    Word(known_.get(), i * kWordBits).store(0, std::memory_order_relaxed);
  }
}

void CachedPages::ForgetIfStale(size_t hits, int64_t faults) {
  const size_t stale = static_cast<size_t>(faults);
  if (stale < 8 && stale * 16 < hits) return;
  if (stale > 0) ForgetAll();
}

// What was copied is worth nothing if the file was cut meanwhile: past its end
// the last page holds zeros, which no fault tells.
size_t CachedPages::Copy(std::span<const QueuedRead> reads) {
  struct Batch {
    const uint8_t* from;
    std::span<const QueuedRead> reads;
    volatile size_t done;
  } batch{bytes_.data(), reads, 0};
  const auto body = [](void* context) {
    Batch* b = static_cast<Batch*>(context);
    for (const QueuedRead& read : b->reads) {
      std::memcpy(read.buffer, b->from + read.offset, read.bytes);
      b->done = b->done + 1;
    }
  };
  (void)!RunGuarded(bytes_, body, &batch);
  return Check() ? batch.done : 0;
}

// Those that are marked; unmarks them from the first that could not be had, and
// all if the file was cut meanwhile.
void CachedPages::CopyTaken(std::span<const QueuedRead> reads, uint8_t* taken) {
  struct Batch {
    const uint8_t* from;
    std::span<const QueuedRead> reads;
    const uint8_t* taken;
    volatile size_t done;
  } batch{bytes_.data(), reads, taken, 0};
  const auto body = [](void* context) {
    Batch* b = static_cast<Batch*>(context);
    const auto ask = [b](size_t i) {
      if (i >= b->reads.size() || b->taken[i] == 0) return;
      Prefetch(b->from + b->reads[i].offset, b->reads[i].bytes);
    };
    for (size_t i = 0; i < kAhead; ++i) ask(i);
    for (size_t i = 0; i < b->reads.size(); ++i) {
      ask(i + kAhead);
      const QueuedRead& read = b->reads[i];
      if (b->taken[i] != 0) {
        std::memcpy(read.buffer, b->from + read.offset, read.bytes);
      }
      b->done = i + 1;
    }
  };
  const bool whole = RunGuarded(bytes_, body, &batch);
  if (!whole) ForgetAll();
  const size_t good = Check() ? batch.done : 0;
  std::memset(taken + good, 0, reads.size() - good);
}

bool CachedPages::ReadAtOnce(const QueuedRead& read) {
  if (!InFile(read)) return false;
  const iovec into{read.buffer, read.bytes};
  const ssize_t got = ::preadv2(file_->buffered(), &into, 1,
                                static_cast<off_t>(read.offset), RWF_NOWAIT);
  if (got < 0 && errno == EOPNOTSUPP) {
    tells_.store(false, std::memory_order_relaxed);
  }
  if (got != static_cast<ssize_t>(read.bytes)) return false;
  Remember(read);
  return true;
}

void CachedPages::Take(std::span<const QueuedRead> reads, uint8_t* taken) {
  std::memset(taken, 0, reads.size());
  if (!Check()) return;
  size_t hits = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    taken[i] = Knows(reads[i]) ? 1 : 0;
    hits += taken[i];
  }
  if (hits > 0) {
    const int64_t faults = MajorFaults();
    CopyTaken(reads, taken);
    ForgetIfStale(hits, MajorFaults() - faults);
  }
  int misses = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    if (taken[i] != 0) continue;
    if (misses == kPatience || !tells_.load(std::memory_order_relaxed)) return;
    taken[i] = ReadAtOnce(reads[i]) ? 1 : 0;
    misses = taken[i] != 0 ? 0 : misses + 1;
  }
}

}  // namespace ecphory
