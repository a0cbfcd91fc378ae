#include "measure/buffer.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "base/ceil_div.h"

namespace ecphory::measure {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::Create(size_t bytes, BenchPages pages) {
  Buffer buffer;
  ECPHORY_ASSIGN_OR_RETURN(
      buffer.memory_,
      AnonymousMemory::Map(bytes, pages == BenchPages::kHuge
                                      ? AnonymousMemory::Pages::kHuge
                                      : AnonymousMemory::Pages::kSmall));
  return buffer;
}

void Buffer::FillFloats(ThreadPool& pool) {
  pool.ParallelFor(size() / kHugePage, 1,
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t page = begin; page < end; ++page) {
                       RandomBits bits(page);
                       float* const out =
                           reinterpret_cast<float*>(data() + page * kHugePage);
                       for (size_t i = 0; i < kHugePage / sizeof(float); ++i) {
                         out[i] = bits.Signed();
                       }
                     }
                   });
}

void Buffer::FillPattern(const uint8_t* pattern, size_t bytes,
                         ThreadPool& pool) {
  const size_t repeats = CeilDiv(size(), bytes);
  pool.ParallelFor(repeats, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(data() + i * bytes, pattern,
                  std::min(bytes, size() - i * bytes));
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
