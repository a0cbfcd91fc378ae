// Repeats a call and keeps the time of each round.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ecphory::measure {

double Now();  // seconds of a clock that only moves forward

// Something that is ready to be timed.
struct Subject {
  std::function<void()> call;
  // Before each call and not timed; null when there is nothing to do, and many
  // calls then make one round.
  std::function<void()> before;
};

struct SampleOptions {
  double seconds = 0.3;  // all rounds together, about
  uint32_t rounds = 7;   // fewer where a call takes very long
};

// Seconds of a call, one value a round, after a call that warms up. `between`
// is called before the first round and after each, not timed; where a round has
// several calls, one that is not timed comes before them.
std::vector<double> Sample(const Subject& subject, const SampleOptions& options,
                           const std::function<void()>& between = nullptr);

}  // namespace ecphory::measure
