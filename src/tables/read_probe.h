// How fast a way in reads at random places: the ceiling that lookups are held
// against.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ecphory/engram_measure.h"
#include "ecphory/status.h"
#include "io/read_queue.h"

namespace ecphory::tables {

// A byte range of the queue's file number `file`.
struct ProbeRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Percentiles of a sorted or unsorted list; 0 for an empty one. `p` in 0..100.
double Percentile(std::vector<double> values, double p);

// Seconds of processor time that all threads of this process have used.
double ProcessCpuSeconds();

// Keeps `depth` aligned reads of `read_bytes` in flight at random places of
// `ranges` until `seconds` have passed; latencies are from submission to
// completion. No place is favoured and none is read on purpose twice.
Result<ReadRate> MeasureReads(ReadQueue* queue,
                              std::span<const ProbeRange> ranges,
                              uint32_t read_bytes, uint32_t depth,
                              double seconds, uint64_t seed);

}  // namespace ecphory::tables
