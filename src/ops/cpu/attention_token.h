// The three steps of one token's attention, the kernels under attention.cc.
//
// Each element of each result is computed in an order of its own that neither
// the number of heads nor the ranges of rows or channels in a call change.
#pragma once

#include <cstddef>

namespace ecphory {

// scores[head * score_stride + i] = q_head . rows[i]
struct AttentionScores {
  const float* q = nullptr;            // [heads, dim]
  const float* const* rows = nullptr;  // [count] of dim floats each
  size_t count = 0;
  size_t heads = 0;
  size_t dim = 0;
  float* scores = nullptr;
  size_t score_stride = 0;
};

// Turns scores[heads, count] into weights, in place; the sink joins the
// denominator only.
struct AttentionSoftmax {
  float* scores = nullptr;
  size_t score_stride = 0;
  size_t count = 0;  // >= 1
  size_t heads = 0;
  const float* sink = nullptr;  // [heads]
  float scale = 0;              // > 0
};

// out[head * out_stride + c] = sum over i of weight[head][i] * rows[i][c]
struct AttentionSum {
  const float* weights =
      nullptr;  // weight[head][i] at head * weight_stride + i
  size_t weight_stride = 0;
  const float* const* rows = nullptr;  // [count] of `channels` floats each
  size_t count = 0;
  size_t heads = 0;
  size_t channels = 0;
  float* out = nullptr;
  size_t out_stride = 0;
};

void Run(const AttentionScores& step);
void Run(const AttentionSoftmax& step);
void Run(const AttentionSum& step);

}  // namespace ecphory
