// How long lookups took: counts in buckets of 9 % and quantiles from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ecphory::engram {

// Not thread-safe; its owner guards it.
class LatencyHistogram {
 public:
  void Add(double seconds);
  uint64_t count() const { return count_; }
  // Seconds that a share `q` (0..1) of what was added did not exceed: the upper
  // edge of its bucket. 0 when nothing was added.
  double Quantile(double q) const;

 private:
  // 8 buckets an octave from 1 us to 2^24 us; the ends take what lies beyond.
  static constexpr size_t kPerOctave = 8;
  std::array<uint64_t, 24 * kPerOctave + 1> counts_{};
  uint64_t count_ = 0;
};

}  // namespace ecphory::engram
