// How often rows come back: counting, without reading any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ecphory::trace {

inline constexpr uint32_t kNever = UINT32_MAX;

// rows [tokens]: for each, the last token before it with the same row, or
// kNever. (One column of one table: columns share no rows.)
std::vector<uint32_t> PreviousUse(std::span<const uint64_t> rows);

struct ReuseCounts {
  uint64_t requests = 0;
  uint64_t within = 0;    // asked before in the same window
  uint64_t distinct = 0;  // first of their row in a window
  uint64_t across = 0;    // of these: asked in an earlier window
  ReuseCounts& operator+=(const ReuseCounts& other);
};
// Windows of `window` tokens one after another.
ReuseCounts CountReuse(std::span<const uint32_t> previous, uint32_t window);

// Hits of exact least-recently-used caches of every size at once, from stack
// distances (Mattson): result[i] requests of `keys` hit a cache of `sizes[i]`
// entries. `sizes` ascend. O(n log n).
std::vector<uint64_t> LruHits(std::span<const uint64_t> keys,
                              std::span<const uint64_t> sizes);

// Seconds that a share `q` of `sorted` (ascending) do not exceed: the smallest
// of them that at least q of all are at most. 0 when there is none.
double Quantile(std::span<const double> sorted, double q);

}  // namespace ecphory::trace
