// Writing a whole file of tables: in chunks, resumable, verified, then named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"
#include "tables/chunks.h"

namespace ecphory::tables {

// What a file of tables consists of, known before a byte is written. Bytes
// between regions are zeros.
struct TableFilePlan {
  std::string header;           // the file's first bytes; may be empty
  std::vector<Region> regions;  // of rows, in order, behind the header
  uint64_t total_bytes = 0;
};

// Fills `out` with the bytes of region `region` from `begin` on, which are
// whole rows. Called from several threads at once; `worker` tells them apart.
using RegionFill = std::function<Status(size_t region, uint64_t begin,
                                        std::span<uint8_t> out, size_t worker)>;

struct WriteOptions {
  std::string path;
  std::string signature;  // of everything that decides about the bytes
  bool overwrite = false;
  size_t threads = 2;
  uint64_t chunk_bytes = kChunkBytes;  // of no other size but in tests
  TableProgress progress;
};

struct WrittenFile {
  std::vector<uint64_t> digests;  // of the plan's chunks, header first
  uint64_t resumed_bytes = 0;     // were there from an earlier run
};

// The most that `fill` is asked for at once, longer rows excepted.
inline constexpr size_t kFillBytes = size_t{4} << 20;

// The header as a region, then the plan's.
std::vector<Region> AllRegions(const TableFilePlan& plan);

// Writes what is missing, reads the whole file again, compares, and gives it
// its name. After an error or a cancellation the same call goes on.
Result<WrittenFile> WriteTableFile(const TableFilePlan& plan,
                                   const RegionFill& fill,
                                   const WriteOptions& options);

}  // namespace ecphory::tables
