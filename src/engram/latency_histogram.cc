#include "engram/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace ecphory::engram {

void LatencyHistogram::Add(double seconds) {
  const double octaves = seconds > 1e-6 ? std::log2(seconds * 1e6) : 0;
  const double bucket = std::ceil(octaves * kPerOctave);
  ++counts_[static_cast<size_t>(
      std::min(bucket, static_cast<double>(counts_.size() - 1)))];
  ++count_;
}

double LatencyHistogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  // The rank of the sought value among those added, from 1.
  const double share = std::clamp(q, 0.0, 1.0) * static_cast<double>(count_);
  const double rank = std::max(std::ceil(share), 1.0);
  size_t bucket = 0;
  uint64_t below = counts_[0];
  while (static_cast<double>(below) < rank && bucket + 1 < counts_.size()) {
    below += counts_[++bucket];
  }
  return std::exp2(static_cast<double>(bucket) / kPerOctave) * 1e-6;
}

}  // namespace ecphory::engram
