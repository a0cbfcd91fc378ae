// Bounds that are measured in turn with what is held to them.
//
// The speed of a machine that others use as well moves by a factor of two from
// one second to the next. A bound of another moment says little then; the ratio
// of a round to what came right before and after it does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ecphory/bench.h"

namespace ecphory::measure {

// What a yardstick counts, and a figure has of it.
enum class Amount : uint8_t { kBytes, kFlops };

// A bound of the machine, ready to be measured.
struct Yardstick {
  std::string name;
  std::string what;
  Amount counted = Amount::kBytes;
  double amount = 0;  // of a call
  // Owns its memory, uses a pool. Null: the rate is known, `amount` a second.
  std::function<void()> call;
};

// The yardsticks that one figure is held to.
class Beside {
 public:
  // A yardstick, and its rate at each look.
  struct Side {
    Yardstick yardstick;
    std::vector<double> rates;
  };

  Beside() = default;
  // `seconds`: of a look, about; it takes each yardstick once or more often.
  Beside(std::vector<Yardstick> yardsticks, double seconds);

  // Measures the yardsticks: before a figure's first round, and after each.
  void Look();
  // Fills bound, bound_seconds and share of a figure that has bytes and flops.
  // Round i, which took seconds[i], came between the looks i and i + 1.
  void Hold(const std::vector<double>& seconds, BenchFigure* figure) const;

  const std::vector<Side>& sides() const { return sides_; }

 private:
  std::vector<Side> sides_;
  double seconds_ = 0;  // of a yardstick
};

}  // namespace ecphory::measure
