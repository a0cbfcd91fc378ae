// The shared expert: where the only expert is every token's only choice, its
// two steps are products of all tokens.
#pragma once

#include <span>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/experts_swiglu.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/matmul.h"
#include "ops/moe.h"

namespace ecphory::cuda {

// hidden [tokens, inner] of the two products' results, [tokens, inner] each.
inline __global__ void DenseHiddenKernel(ExpertsArgs a, const float* gate,
                                         const float* up, float* hidden) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= a.tokens * a.inner) return;
  hidden[i] = Swiglu(a, gate[i], up[i], a.weights[i / a.inner]);
}

inline bool IsDense(const ExpertsArgs& a) {
  return a.n_experts == 1 && a.topk == 1;
}

// Both steps of a call that IsDense(). `of_host`: the same with experts that
// the host may look at. The outputs are not yet rounded.
inline void RunDense(const ExpertsArgs& of_device, const ExpertsArgs& of_host,
                     float* hidden, float* out, ThreadPool& pool) {
  const ExpertsArgs& a = of_device;
  const Expert& e = of_host.experts[0];
  struct Gates;
  const size_t all = a.tokens * a.inner;
  float* const gates = Scratch<Gates>(2 * all);
  if (gates == nullptr) return;  // noted
  const auto product = [&](const Matrix& m, const float* x, float* y) {
    return MatmulArgs{
        .weight = m, .x = x, .y = y, .tokens = a.tokens, .input = a.input};
  };
  const MatmulArgs first[2] = {product(e.w1, a.x, gates),
                               product(e.w3, a.x, gates + all)};
  Matmuls(std::span<const MatmulArgs>(first), pool);
  LaunchOverlapped(DenseHiddenKernel, dim3(Blocks(all, 256)), 256, 0,
                   "experts: hidden", a, gates, gates + all, hidden);
  Matmul(product(e.w2, hidden, out), pool);
}

}  // namespace ecphory::cuda
