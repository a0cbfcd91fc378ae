#include "measure/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/ceil_div.h"

namespace ecphory::measure {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// mmap aligns to 4 KiB: maps more, and gives the ends back.
uint8_t* MapAligned(size_t bytes) {
  void* const mapped =
      ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const base = static_cast<uint8_t*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(base);
  const size_t front = CeilDiv(address, kHugePage) * kHugePage - address;
  if (front > 0) ::munmap(base, front);
  if (front < kHugePage) ::munmap(base + front + bytes, kHugePage - front);
  return base + front;
}

}  // namespace

Result<Buffer> Buffer::Create(size_t bytes, BenchPages pages) {
  Buffer buffer;
  buffer.size_ = std::max<size_t>(1, CeilDiv(bytes, kHugePage)) * kHugePage;
  buffer.data_ = MapAligned(buffer.size_);
  if (buffer.data_ == nullptr) {
    return ResourceExhausted("cannot allocate %zu bytes to measure in",
                             buffer.size_);
  }
  // Advice: a kernel without huge pages refuses both, and has small ones.
  (void)::madvise(buffer.data_, buffer.size_,
                  pages == BenchPages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void Buffer::FillFloats(ThreadPool& pool) {
  pool.ParallelFor(size_ / kHugePage, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t page = begin; page < end; ++page) {
      RandomBits bits(page);
      float* const out = reinterpret_cast<float*>(data_ + page * kHugePage);
      for (size_t i = 0; i < kHugePage / sizeof(float); ++i) {
        out[i] = bits.Signed();
      }
    }
  });
}

void Buffer::FillPattern(const uint8_t* pattern, size_t bytes,
                         ThreadPool& pool) {
  const size_t repeats = CeilDiv(size_, bytes);
  pool.ParallelFor(repeats, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(data_ + i * bytes, pattern,
                  std::min(bytes, size_ - i * bytes));
    }
  });
}

bool HugePagesAllowed() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  return !line.empty() && line.find("[never]") == std::string::npos;
}

uint64_t RandomBits::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

float RandomBits::Signed() {
  return static_cast<float>(static_cast<int64_t>(Next())) * 0x1p-63f;
}

}  // namespace ecphory::measure
