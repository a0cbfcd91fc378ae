#include "io/cached_pages.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "io/bus_guard.h"

namespace ecphory {

namespace {
// Larger pages than the kernel's own would be fine, too: a page is only what
// one bit stands for.
constexpr uint64_t kPage = 4096;
constexpr uint64_t kWordBits = 64;
}  // namespace

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
    if ((known_[page / kWordBits] >> (page % kWordBits) & 1) == 0) return false;
  }
  return true;
}

void CachedPages::Remember(const QueuedRead& read) {
  if (!InFile(read)) return;
  const uint64_t last = (read.offset + read.bytes - 1) / kPage;
  for (uint64_t page = read.offset / kPage; page <= last; ++page) {
    known_[page / kWordBits] |= uint64_t{1} << (page % kWordBits);
  }
}

void CachedPages::ForgetAll() {
  if (known_ != nullptr) {
    std::memset(known_.get(), 0, words_ * sizeof(uint64_t));
  }
}

size_t CachedPages::Copy(std::span<const QueuedRead> reads) const {
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
  return batch.done;
}

}  // namespace ecphory
