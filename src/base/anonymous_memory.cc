#include "base/anonymous_memory.h"

#include <sys/mman.h>

#include <utility>

#include "base/checked_math.h"

namespace ecphory {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// mmap aligns to 4 KiB: maps more, and gives the ends back.
uint8_t* MapAligned(size_t bytes) {
  void* const mapped =
      ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const base = static_cast<uint8_t*>(mapped);
  const size_t front =
      (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (front > 0) ::munmap(base, front);
  if (front < kHugePage) ::munmap(base + front + bytes, kHugePage - front);
  return base + front;
}

}  // namespace

Result<AnonymousMemory> AnonymousMemory::Map(size_t bytes, Pages pages) {
  AnonymousMemory memory;
  uint64_t size = 0;
  if (bytes < SIZE_MAX / 2 &&
      CheckedAlignUp(bytes == 0 ? 1 : bytes, kHugePage, &size)) {
    memory.data_ = MapAligned(size);
  }
  if (memory.data_ == nullptr) {
    return ResourceExhausted("cannot allocate %zu bytes", bytes);
  }
  memory.size_ = size;
  // Advice: a kernel without huge pages refuses both, and has small ones.
  (void)::madvise(memory.data_, memory.size_,
                  pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return memory;
}

AnonymousMemory::~AnonymousMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

AnonymousMemory::AnonymousMemory(AnonymousMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

AnonymousMemory& AnonymousMemory::operator=(AnonymousMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void AdviseHugePages(void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (begin + bytes) / kHugePage * kHugePage;
  if (first >= end) return;
  (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace ecphory
