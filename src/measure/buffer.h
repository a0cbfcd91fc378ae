// Memory to measure in: its pages are known, and so is who touched them first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/anonymous_memory.h"
#include "base/thread_pool.h"
#include "ecphory/bench.h"
#include "ecphory/status.h"

namespace ecphory::measure {

// Anonymous memory, page-aligned (2 MiB). Move-only.
class Buffer {
 public:
  Buffer() = default;
  // kResourceExhausted names the bytes. kHuge asks for 2 MiB pages, which the
  // kernel gives when it can; kSmall forbids them.
  static Result<Buffer> Create(size_t bytes, BenchPages pages);

  size_t size() const { return memory_.size(); }
  uint8_t* data() { return memory_.data(); }
  const uint8_t* data() const { return memory_.data(); }
  float* floats() { return reinterpret_cast<float*>(data()); }

  // Writes random fp32 values in [-1, 1), each thread of the pool its own part.
  void FillFloats(ThreadPool& pool);
  // Repeats `pattern` over the whole buffer likewise.
  void FillPattern(const uint8_t* pattern, size_t bytes, ThreadPool& pool);

 private:
  AnonymousMemory memory_;
};

// Whether the kernel gives huge pages to those who ask.
bool HugePagesAllowed();

// Pseudo-random bits that cost a few instructions (splitmix64).
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  float Signed();  // [-1, 1)

 private:
  uint64_t state_;
};

}  // namespace ecphory::measure
