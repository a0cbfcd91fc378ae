// The few formulas that several operators share.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "ops/hyper_connection.h"
#include "tensor/float_codec.h"
#include "tensor/int8_block.h"

namespace ecphory::ref {

template <typename T>
double Dot(const float* a, const T* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// What MatmulInput::kInt8 takes x [n] for; n: a multiple of 32.
inline std::vector<double> RoundedToInt8(const float* x, size_t n) {
  std::vector<double> rounded(n);
  for (size_t i = 0; i < n; i += kInt8Block) {
    int8_t codes[kInt8Block];
    const double scale = RoundToInt8(x + i, codes);
    for (size_t j = 0; j < kInt8Block; ++j) rounded[i + j] = codes[j] * scale;
  }
  return rounded;
}

// x [n] as bf16 values.
inline void RoundValues(float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = RoundToBF16(x[i]);
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
