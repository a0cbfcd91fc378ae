// The few formulas that several operators share.
#pragma once

#include <cmath>
#include <cstddef>

#include "ops/hyper_connection.h"

namespace ecphory::ref {

inline double Dot(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// 1 / sqrt(mean(x^2) + eps)
inline double InverseRms(const float* x, size_t n, double eps) {
  return 1 / std::sqrt(Dot(x, x, n) / static_cast<double>(n) + eps);
}

inline double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

inline double Sigmoid(SigmoidForm form, double z) {
  if (form == SigmoidForm::kExp) return Sigmoid(z);
  return 0.5 * (1 + std::tanh(0.5 * z));
}

}  // namespace ecphory::ref
