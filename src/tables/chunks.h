// The parts of a file of tables, and the chunks that a tool works through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"

namespace ecphory::tables {

// A byte range with one meaning: a header, a table, a table's scales.
struct Region {
  std::string name;  // for errors and manifests
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t row_bytes = 1;  // chunks hold whole rows
};

// Work is saved, hashed and reported by the chunk: small enough that little is
// lost with one, large enough for a disk's full speed.
inline constexpr uint64_t kChunkBytes = uint64_t{64} << 20;

struct Chunk {
  size_t region = 0;
  uint64_t begin = 0;  // from the region's start
  uint64_t bytes = 0;
};

// Bytes of a region's chunks but the last: whole rows, at most `limit` (one
// row, should that be longer).
uint64_t ChunkBytesOf(const Region& region, uint64_t limit = kChunkBytes);

// Every region's chunks, in order.
std::vector<Chunk> ChunksOf(std::span<const Region> regions,
                            uint64_t limit = kChunkBytes);

// Tells how far a phase is, from any thread, and remembers a cancellation.
class ProgressMeter {
 public:
  ProgressMeter(TableProgress report, std::string phase, uint64_t total)
      : report_(std::move(report)), phase_(std::move(phase)), total_(total) {}
  // kCancelled once the callback returned false. Not thread-safe.
  Status Add(uint64_t bytes);

 private:
  TableProgress report_;
  std::string phase_;
  uint64_t total_;
  uint64_t done_ = 0;
};

// Calls work(chunk index, worker) for every chunk on `threads` threads, lower
// chunks first; `worker` < threads. The first error stops everything and is
// returned.
using ChunkWork = std::function<Status(size_t chunk, size_t worker)>;
Status ForEachChunk(size_t chunks, size_t threads, const ChunkWork& work);

}  // namespace ecphory::tables
