// Injection of a per-layer n-gram table: gated values and their convolution
// over time, added to every stream. With n(z) = z * rsqrt(mean(z^2) + eps) over
// the D values of one stream,
//   g_s = sum_i n(k_s)[i] * (1 + kw[s][i]) * n(x_s)[i] * (1 + qw[s][i]) /
//   sqrt(D) g_s = sign(g_s) * sqrt(max(|g_s|, 1e-6)), 0 where g_s is 0 u_s =
//   sigmoid(g_s) * v c_s = n(u_s) * (1 + cw[s]) x_s += u_s + silu(sum_j
//   conv[s][.][j] * c_s at t - (kernel - 1 - j) * dilation)
// The convolution is causal and works on each channel apart. Before position 0
// its input is 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

struct PleGateArgs {
  const float* key = nullptr;               // [tokens, S, D]: key_proj(e)
  const float* value = nullptr;             // [tokens, D]: value_proj(e)
  const float* key_weight = nullptr;        // [S, D], kw
  const float* query_weight = nullptr;      // [S, D], qw
  const float* conv_norm_weight = nullptr;  // [S, D], cw
  const float* conv_weight = nullptr;       // [S, D, kernel], oldest tap first
  // [tokens] or null; 1 = padding: the streams stay as they are, and c is 0
  // there for later tokens. key and value are not read.
  const uint8_t* shut = nullptr;
  size_t tokens = 0;  // of one sequence, in order
  size_t streams = 0;
  size_t dim = 0;
  size_t kernel = 0;    // >= 1
  size_t dilation = 0;  // >= 1
  float eps = 0;
  // c of earlier positions, [state_rows, S, D]: position p is in row
  // p % state_rows. Read and advanced. state_rows >= (kernel - 1) * dilation;
  // every row beyond that is a token by which a sequence may be taken back
  // without a copy of its state.
  float* state = nullptr;
  size_t state_rows = 0;
  size_t position = 0;    // of the first token
  float* x = nullptr;     // [tokens, S, D], in place
  float* gate = nullptr;  // [tokens, S] or null: sigmoid(g), 0 where shut
};

}  // namespace ecphory
