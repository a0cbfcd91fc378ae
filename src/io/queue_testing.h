// Files with known bytes, and reads of them, for the tests of read queues.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "io/read_queue.h"
#include "io/table_file.h"

namespace ecphory {

// The byte at `offset` of the file made with `seed`.
inline uint8_t FileByte(uint64_t seed, uint64_t offset) {
  return static_cast<uint8_t>((offset * 2654435761u + seed * 97) >> 13);
}

inline std::vector<uint8_t> FileBytes(uint64_t seed, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = FileByte(seed, i);
  return bytes;
}

inline void WriteFile(const std::string& path, std::span<const uint8_t> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

inline std::shared_ptr<const TableFile> OpenTable(const std::string& path) {
  auto file = OpenFile(path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  auto table = TableFile::Open(*file);
  EXPECT_TRUE(table.ok()) << table.status().ToString();
  return *table;
}

// Page-aligned memory for any read.
class ReadMemory {
 public:
  explicit ReadMemory(size_t bytes)
      : memory_(static_cast<uint8_t*>(
            std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {}
  ~ReadMemory() { std::free(memory_); }
  ReadMemory(const ReadMemory&) = delete;
  ReadMemory& operator=(const ReadMemory&) = delete;
  uint8_t* data() const { return memory_; }

 private:
  uint8_t* const memory_;
};

inline constexpr uint32_t kTestRead = 4096;

// `count` reads of kTestRead bytes at random places of file `file`, all inside
// `size` bytes; read i goes to memory + i * kTestRead and has tag i.
inline std::vector<QueuedRead> RandomReads(uint32_t file, uint64_t size,
                                           size_t count, uint8_t* memory,
                                           uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<QueuedRead> reads(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t block = rng() % (size / kTestRead);
    reads[i] = {file, kTestRead, block * kTestRead, memory + i * kTestRead, i};
  }
  return reads;
}

inline bool HoldsFileBytes(const QueuedRead& read, uint64_t seed,
                           size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (read.buffer[i] != FileByte(seed, read.offset + i)) return false;
  }
  return true;
}

// Submits all and reaps all; results[tag] of each read.
inline std::vector<int32_t> RunReads(ReadQueue* queue,
                                     std::span<const QueuedRead> reads) {
  std::vector<int32_t> results(reads.size(), -9999);
  std::vector<CompletedRead> done(queue->depth());
  size_t submitted = 0;
  size_t reaped = 0;
  while (reaped < reads.size()) {
    const auto taken = queue->Submit(reads.subspan(submitted));
    EXPECT_TRUE(taken.ok()) << taken.status().ToString();
    if (!taken.ok()) return results;
    submitted += *taken;
    const size_t in_flight = submitted - reaped;
    EXPECT_GT(in_flight, 0u);
    if (in_flight == 0) return results;
    const auto got = queue->Reap(done, in_flight == 1 ? 1 : in_flight / 2);
    EXPECT_TRUE(got.ok()) << got.status().ToString();
    if (!got.ok()) return results;
    for (size_t i = 0; i < *got; ++i) results[done[i].tag] = done[i].result;
    reaped += *got;
  }
  return results;
}

}  // namespace ecphory
