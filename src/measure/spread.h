// Median and spread of rounds.
#pragma once

#include <vector>

#include "ecphory/bench.h"

namespace ecphory::measure {

// Quantile q in [0, 1] of ascending values, linear between neighbours; 0 of
// none.
double Quantile(const std::vector<double>& ascending, double q);

BenchSpread SpreadOf(std::vector<double> values);

}  // namespace ecphory::measure
