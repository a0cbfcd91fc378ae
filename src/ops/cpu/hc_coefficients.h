// From a site's sums over the streams to its coefficients.
#pragma once

#include <cstddef>

#include "ops/hyper_connection.h"

namespace ecphory {

// What the coefficients of a token are computed from, `stride` values a token:
// fn . concat(h), not yet normalised (the factor is per token and commutes),
// then sum of h^2.
struct HcSums {
  const float* values = nullptr;
  size_t stride = 0;
};

// pre, post and comb of tokens [first, first + tokens); `sums` are those of
// token `first` and on.
void HcCoefficients(const HcSplitArgs& args, const HcSums& sums, size_t first,
                    size_t tokens);

}  // namespace ecphory
