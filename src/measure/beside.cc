#include "measure/beside.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "measure/sampler.h"
#include "measure/spread.h"

namespace ecphory::measure {

namespace {

double RateOf(const Yardstick& yardstick, double seconds) {
  if (yardstick.call == nullptr) return yardstick.amount;
  const double begin = Now();
  double calls = 0, spent = 0;
  do {
    yardstick.call();
    ++calls;
    spent = Now() - begin;
  } while (spent < seconds);
  return calls * yardstick.amount / spent;
}

// The time that a round's share takes at the mean speed of the looks around it.
double BoundOf(const Beside::Side& side, const BenchFigure& figure,
               size_t round) {
  const double amount =
      side.yardstick.counted == Amount::kBytes ? figure.bytes : figure.flops;
  return amount / 2 * (1 / side.rates[round] + 1 / side.rates[round + 1]);
}

}  // namespace

Beside::Beside(std::vector<Yardstick> yardsticks, double seconds)
    : seconds_(seconds /
               static_cast<double>(std::max<size_t>(1, yardsticks.size()))) {
  for (Yardstick& yardstick : yardsticks) {
    sides_.push_back({std::move(yardstick), {}});
  }
}

void Beside::Look() {
  for (Side& side : sides_) {
    side.rates.push_back(RateOf(side.yardstick, seconds_));
  }
}

void Beside::Hold(const std::vector<double>& seconds,
                  BenchFigure* figure) const {
  std::vector<double> longest(seconds.size()), shares;
  for (const Side& side : sides_) {
    ECPHORY_CHECK(side.rates.size() == seconds.size() + 1);
    std::vector<double> bounds;
    for (size_t i = 0; i < seconds.size(); ++i) {
      bounds.push_back(BoundOf(side, *figure, i));
      longest[i] = std::max(longest[i], bounds[i]);
    }
    const double median = SpreadOf(bounds).median;
    if (median <= figure->bound_seconds) continue;
    figure->bound = side.yardstick.name;
    figure->bound_seconds = median;
  }
  if (figure->bound.empty()) return;
  for (size_t i = 0; i < seconds.size(); ++i) {
    shares.push_back(longest[i] / seconds[i]);
  }
  figure->share = SpreadOf(shares);
}

}  // namespace ecphory::measure
