// Mixture of experts: routing and the expert feed-forward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ecphory/config.h"
#include "ops/matmul.h"
#include "tensor/matrix.h"

namespace ecphory {

// s = score(logits / gate_temp); experts = top_k of s + bias (ties keep the
// lower id), in descending order of s + bias; weights = s of the chosen,
// divided by (sum + 1e-20) when `normalize`, times `scale`.
struct RouterArgs {
  const float* logits = nullptr;        // [tokens, experts]
  const float* bias = nullptr;          // [experts]
  const float* bias_image = nullptr;    // [experts], used where image_mask != 0
  const uint8_t* image_mask = nullptr;  // [tokens] or null
  size_t tokens = 0;
  size_t experts = 0;
  size_t topk = 0;
  RouterScoreKind score = RouterScoreKind::kSqrtSoftplus;
  float gate_temp = 1;
  bool normalize = true;
  float scale = 1;
  int32_t* ids = nullptr;    // [tokens, topk]
  float* weights = nullptr;  // [tokens, topk]
};

struct Expert {
  Matrix w1;  // gate [inner, D]
  Matrix w3;  // up   [inner, D]
  Matrix w2;  // down [D, inner]
};

// g = min(x w1^T, L), u = clamp(x w3^T, -L, L)  (L = swiglu_limit, off when 0)
// y[t] = sum_j (weight_j * silu(g) * u) w2^T over the token's experts j, fp32,
// in an order that does not depend on other tokens. Batch-invariant like
// matmul (CUDA: among calls of up to 512 choices of experts, and of more).
struct ExpertsArgs {
  const float* x = nullptr;  // [tokens, dim]
  size_t tokens = 0;
  size_t dim = 0;
  const Expert* experts = nullptr;  // [n_experts], all of one shape; of the
                                    // host, which looks at formats and shapes
  // The same array in the operators' memory; null: `experts` lies there.
  const Expert* device_experts = nullptr;
  size_t n_experts = 0;
  size_t inner = 0;                // rows of w1 and w3
  const int32_t* ids = nullptr;    // [tokens, topk]
  const float* weights = nullptr;  // [tokens, topk]
  size_t topk = 0;
  float swiglu_limit = 0;
  bool round_bf16 = false;  // round g, u, silu(g)*u*w and w2's output
  bool accumulate = false;  // y += instead of y =
  // Of all three projections: kBF16 needs bf16 values in x, and `round_bf16`.
  MatmulInput input = MatmulInput::kF32;
  float* y = nullptr;  // [tokens, dim]
};

// What MatmulInput::kInt8 rounds: x, and the hidden vectors in front of w2. Of
// weights that all experts have in one format with TakesInt8() (w1 and w3 in
// the same one); the input of others is taken as it is.
struct ExpertsInt8 {
  explicit ExpertsInt8(const ExpertsArgs& args) {
    const auto takes = [&](Matrix Expert::*part) {
      const WeightFormat format = (args.experts[0].*part).format;
      bool all = args.input == MatmulInput::kInt8 && TakesInt8(format);
      for (size_t e = 0; e < args.n_experts; ++e) {
        all = all && (args.experts[e].*part).format == format;
      }
      return all;
    };
    x = takes(&Expert::w1) && takes(&Expert::w3) &&
        args.experts[0].w1.format == args.experts[0].w3.format;
    hidden = takes(&Expert::w2);
  }
  bool x, hidden;
};

}  // namespace ecphory
