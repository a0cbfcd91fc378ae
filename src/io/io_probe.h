// How fast a queue reads at random places: a short measurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "io/read_queue.h"
#include "io/table_file.h"

namespace ecphory {

// A table's bytes in a file, by the file's index.
struct TableRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Reads that a probe keeps in flight: the rate no longer rises much beyond, and
// a slow disk is done with them soon.
inline constexpr uint32_t kProbeDepth = 64;

class IoProbe {
 public:
  // Reads of `read_bytes` at random places of `ranges`, each of which lies
  // within its file; at least one is not empty. `files` has what the queues
  // were made for.
  IoProbe(std::span<const std::shared_ptr<const TableFile>> files,
          std::span<const TableRange> ranges, uint32_t read_bytes);

  // Keeps min(kProbeDepth, depth) reads in flight for `seconds`, waits for the
  // last ones and returns reads per second, all included. A failed read is
  // kIoError.
  Result<double> Measure(ReadQueue* queue, double seconds);

 private:
  QueuedRead RandomRead(const ReadQueue& queue, size_t slot);
  Status SubmitAll(ReadQueue* queue, std::span<const QueuedRead> reads);

  std::vector<TableRange> ranges_;
  std::vector<uint64_t> file_sizes_;
  uint64_t total_bytes_ = 0;
  uint32_t read_bytes_;
  std::vector<uint8_t> memory_;
  std::mt19937_64 rng_{1};
};

// Whether measurements taken in turns leave no doubt about which is faster: at
// least two each, all of one above all of the other by a quarter.
bool OrderIsClear(std::span<const double> a, std::span<const double> b);

}  // namespace ecphory
