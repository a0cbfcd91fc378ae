// Engram injection: h_s += gate_s * v, per stream and token.
//   dot_s  = sum_i h_s[i] * q_w[s][i] * k_w[s][i] * k_s[i]
//   dot_s *= rsqrt(mean(h_s^2) + eps) * rsqrt(mean(k_s^2) + eps) * D^-0.5
//   gate_s = sigmoid(copysign(sqrt(max(|dot_s|, 1e-6)), dot_s))
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/hyper_connection.h"

namespace ecphory {

struct EngramGateArgs {
  const float* kv = nullptr;        // [tokens, (H + 1) * D]: H keys, one value
  const float* q_weight = nullptr;  // [H, D]
  const float* k_weight = nullptr;  // [H, D]
  const uint8_t* shut = nullptr;    // [tokens] or null; 1 = leave h untouched
  size_t tokens = 0;
  size_t streams = 0;
  size_t dim = 0;
  float eps = 0;
  SigmoidForm sigmoid = SigmoidForm::kTanh;
  Streams h;              // [tokens, H, D], in place
  float* gate = nullptr;  // [tokens, H] or null; 0 where shut
};

}  // namespace ecphory
