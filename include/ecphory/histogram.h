// How often which duration occurred, in fixed memory: for percentiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ecphory/export.h"

namespace ecphory {

// A plain value: copying it is a snapshot, and the difference of two snapshots
// is what happened in between. Durations fall into buckets a sixteenth of their
// size wide, from nanoseconds to half an hour.
class ECPHORY_EXPORT DurationHistogram {
 public:
  void Add(double seconds);
  uint64_t count() const { return count_; }
  // Seconds that a share `q` (0..1) of the durations did not exceed, at most a
  // sixteenth too high; 0 when there is none.
  double Quantile(double q) const;
  // Takes away what `earlier`, a former copy of this one, had counted.
  DurationHistogram& operator-=(const DurationHistogram& earlier);

 private:
  static constexpr size_t kSteps = 16;  // buckets of an octave
  static constexpr size_t kOctaves = 37;

  static size_t BucketOf(uint64_t nanoseconds);
  static double UpperEnd(size_t bucket);  // in seconds

  std::array<uint64_t, kSteps*(kOctaves + 1)> buckets_{};
  uint64_t count_ = 0;
};

}  // namespace ecphory
