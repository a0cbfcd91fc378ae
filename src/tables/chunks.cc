#include "tables/chunks.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace ecphory::tables {

uint64_t ChunkBytesOf(const Region& region, uint64_t limit) {
  const uint64_t rows = std::max<uint64_t>(1, limit / region.row_bytes);
  return rows * region.row_bytes;
}

std::vector<Chunk> ChunksOf(std::span<const Region> regions, uint64_t limit) {
  std::vector<Chunk> chunks;
  for (size_t r = 0; r < regions.size(); ++r) {
    const uint64_t step = ChunkBytesOf(regions[r], limit);
    for (uint64_t begin = 0; begin < regions[r].bytes; begin += step) {
      chunks.push_back({r, begin, std::min(step, regions[r].bytes - begin)});
    }
  }
  return chunks;
}

Status ProgressMeter::Add(uint64_t bytes) {
  done_ += bytes;
  if (!report_ || report_(phase_, done_, total_)) return {};
  return Cancelled("while %s", phase_.c_str());
}

namespace {

// Hands out chunk numbers and keeps the first error.
class ChunkQueue {
 public:
  explicit ChunkQueue(size_t chunks) : chunks_(chunks) {}

  void Work(const ChunkWork& work, size_t worker) {
    // An exception that left a thread would end the process.
    try {
      for (size_t chunk; Take(&chunk);) Keep(work(chunk, worker));
    } catch (const std::bad_alloc&) {
      Keep(
          ResourceExhausted("out of memory; free some, or ask for fewer "
                            "--threads"));
    }
  }

  void Keep(Status status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }

  const Status& status() const { return status_; }

 private:
  bool Take(size_t* chunk) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok() || next_ == chunks_) return false;
    *chunk = next_++;
    return true;
  }

  std::mutex mutex_;
  const size_t chunks_;
  size_t next_ = 0;
  Status status_;
};

}  // namespace

Status ForEachChunk(size_t chunks, size_t threads, const ChunkWork& work) {
  ChunkQueue queue(chunks);
  std::vector<std::thread> helpers;
  try {
    for (size_t i = 1; i < std::min(threads, chunks); ++i) {
      helpers.emplace_back([&queue, &work, i] { queue.Work(work, i); });
    }
  } catch (const std::system_error& error) {
    queue.Keep(ResourceExhausted("cannot start %zu threads: %s; ask for fewer",
                                 threads, error.what()));
  }
  queue.Work(work, 0);
  for (std::thread& helper : helpers) helper.join();
  return queue.status();
}

}  // namespace ecphory::tables
