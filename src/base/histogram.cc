#include "ecphory/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ecphory {

namespace {
constexpr double kNanosecond = 1e-9;
constexpr double kLongest = 1800;  // seconds; longer ones count as this
}  // namespace

// The first 16 buckets are a nanosecond each; then every octave has 16.
size_t DurationHistogram::BucketOf(uint64_t nanoseconds) {
  if (nanoseconds < kSteps) return nanoseconds;
  const int shift = std::bit_width(nanoseconds) - std::bit_width(kSteps);
  const size_t bucket =
      kSteps * static_cast<size_t>(shift) + (nanoseconds >> shift);
  return std::min(bucket, kSteps * (kOctaves + 1) - 1);
}

double DurationHistogram::UpperEnd(size_t bucket) {
  if (bucket < kSteps) return static_cast<double>(bucket) * kNanosecond;
  const size_t shift = bucket / kSteps - 1;
  const uint64_t leading = kSteps + bucket % kSteps;
  return static_cast<double>(((leading + 1) << shift) - 1) * kNanosecond;
}

void DurationHistogram::Add(double seconds) {
  const double clamped = seconds > 0 ? std::min(seconds, kLongest) : 0;
  ++buckets_[BucketOf(
      static_cast<uint64_t>(std::llround(clamped / kNanosecond)))];
  ++count_;
}

double DurationHistogram::Quantile(double q) const {
  const double wanted = std::clamp(q, 0.0, 1.0) * static_cast<double>(count_);
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      return UpperEnd(bucket);
    }
  }
  return 0;
}

DurationHistogram& DurationHistogram::operator-=(
    const DurationHistogram& earlier) {
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    buckets_[bucket] -= earlier.buckets_[bucket];
  }
  count_ -= earlier.count_;
  return *this;
}

}  // namespace ecphory
