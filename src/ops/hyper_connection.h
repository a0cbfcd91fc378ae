// mHC: manifold-constrained hyper-connections over H residual streams.
// Formulas: docs/architecture.md, 'mHC'. All arithmetic fp32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/residual_streams.h"
#include "tensor/matrix.h"

namespace ecphory {

inline constexpr size_t kMinStreams = 2;
inline constexpr size_t kMaxStreams = 16;

// 1/(1+exp(-z)) can overflow inside exp for large negative z on some targets;
// 0.5*(1+tanh(z/2)) never does. Same value to rounding.
enum class SigmoidForm : uint8_t { kExp, kTanh };

// split: all that a site does before its sublayer, in one pass over the
// streams.
//   h = expand(y, h, last_post, last_comb)       when y is not null
//   z = concat(h) * rsqrt(mean(h^2) + norm_eps);  m = fn * z
//   x = rms_norm(collapse(h, collapse_pre), norm_weight, norm_eps)
//   pre  = sigmoid(m[0..H) * scale[0] + base[0..H)) + hc_eps
//   post = 2 * sigmoid(m[H..2H) * scale[1] + base[H..2H))
//   comb = Sinkhorn(m[2H..) * scale[2] + base[2H..)), comb[source][destination]
// The same bits as hc_expand, a split without y, hc_collapse and rms_norm one
// after another, with round_bf16 after the norm of bf16 streams.
struct HcSplitArgs {
  // The expand that the site before still owes; y null: none.
  const float* y = nullptr;          // [tokens, D]
  const float* last_post = nullptr;  // [tokens, H]; may be `post`
  const float* last_comb = nullptr;  // [tokens, H, H]; may be `comb`
  Streams h;                         // [tokens, H, D], written only with y

  Matrix fn;                     // [(2 + H) * H, H * D]
  const float* scale = nullptr;  // [3]
  const float* base = nullptr;   // [(2 + H) * H]
  size_t tokens = 0;
  size_t streams = 0;  // H
  size_t dim = 0;      // D
  float norm_eps = 0;  // of z and of x
  float hc_eps = 0;
  uint32_t sinkhorn_iters = 0;  // >= 1
  SigmoidForm sigmoid = SigmoidForm::kTanh;

  const float* collapse_pre = nullptr;  // [tokens, H], may be `pre`; null: this
                                        // site's own
  const float* norm_weight = nullptr;   // [D]
  float* pre = nullptr;                 // [tokens, H]
  float* post = nullptr;                // [tokens, H]
  float* comb = nullptr;                // [tokens, H, H]
  float* x = nullptr;                   // [tokens, D]
};

// The per-site family's final mix: only a `pre`, from fn [H, H * D].
//   pre = sigmoid(m * scale[0] + base) + hc_eps
struct HcHeadArgs {
  ConstStreams h;                // [tokens, H, D]
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
  ConstStreams h;              // [tokens, H, D]
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
  Streams h;  // [tokens, H, D], updated in place
};

}  // namespace ecphory
