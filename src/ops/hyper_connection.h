// mHC: manifold-constrained hyper-connections over H residual streams.
// Formulas: docs/architecture.md, 'mHC'. All arithmetic fp32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace ecphory {

inline constexpr size_t kMinStreams = 2;
inline constexpr size_t kMaxStreams = 16;

// 1/(1+exp(-z)) can overflow inside exp for large negative z on some targets;
// 0.5*(1+tanh(z/2)) never does. Same value to rounding.
enum class SigmoidForm : uint8_t { kExp, kTanh };

// mix: (pre, post, comb) of one site from the streams.
//   z = concat(h) * rsqrt(mean(z^2) + norm_eps);  m = fn * z
//   pre  = sigmoid(m[0..H) * scale[0] + base[0..H)) + hc_eps
//   post = 2 * sigmoid(m[H..2H) * scale[1] + base[H..2H))
//   comb = Sinkhorn(m[2H..) * scale[2] + base[2H..)), comb[source][destination]
struct HcMixArgs {
  const float* h = nullptr;      // [tokens, H, D]
  Matrix fn;                     // [(2 + H) * H, H * D]
  const float* scale = nullptr;  // [3]
  const float* base = nullptr;   // [(2 + H) * H]
  size_t tokens = 0;
  size_t streams = 0;  // H
  size_t dim = 0;      // D
  float norm_eps = 0;
  float hc_eps = 0;
  uint32_t sinkhorn_iters = 0;  // >= 1
  SigmoidForm sigmoid = SigmoidForm::kTanh;
  float* pre = nullptr;   // [tokens, H]
  float* post = nullptr;  // [tokens, H]
  float* comb = nullptr;  // [tokens, H, H]
};

// The per-site family's final mix: only a `pre`, from fn [H, H * D].
//   pre = sigmoid(m * scale[0] + base) + hc_eps
struct HcHeadArgs {
  const float* h = nullptr;      // [tokens, H, D]
  Matrix fn;                     // [H, H * D]
  const float* scale = nullptr;  // [1]
  const float* base = nullptr;   // [H]
  size_t tokens = 0;
  size_t streams = 0;
  size_t dim = 0;
  float norm_eps = 0;
  float hc_eps = 0;
  SigmoidForm sigmoid = SigmoidForm::kTanh;
  float* pre = nullptr;  // [tokens, H]
};

// x = sum_s pre[s] * h[s]
struct HcCollapseArgs {
  const float* h = nullptr;    // [tokens, H, D]
  const float* pre = nullptr;  // [tokens, H]
  size_t tokens = 0;
  size_t streams = 0;
  size_t dim = 0;
  float* x = nullptr;  // [tokens, D]
};

// h[k] = post[k] * y + sum_j comb[j][k] * h[j]: the product with y first, then
// j = 0..H-1 in order. Note: the summed index is comb's FIRST index.
struct HcExpandArgs {
  const float* y = nullptr;     // [tokens, D]
  const float* post = nullptr;  // [tokens, H]
  const float* comb = nullptr;  // [tokens, H, H]
  size_t tokens = 0;
  size_t streams = 0;
  size_t dim = 0;
  float* h = nullptr;  // [tokens, H, D], updated in place
};

}  // namespace ecphory
