#include "measure/spread.h"

#include <algorithm>

namespace ecphory::measure {

double Quantile(const std::vector<double>& ascending, double q) {
  if (ascending.empty()) return 0;
  const double at = q * static_cast<double>(ascending.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, ascending.size() - 1);
  const double part = at - static_cast<double>(low);
  return ascending[low] + part * (ascending[high] - ascending[low]);
}

BenchSpread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.median = Quantile(values, 0.5),
          .p10 = Quantile(values, 0.1),
          .p90 = Quantile(values, 0.9),
          .min = Quantile(values, 0),
          .max = Quantile(values, 1),
          .rounds = static_cast<uint32_t>(values.size())};
}

}  // namespace ecphory::measure
