// The second kernel of a split of few tokens: adds up the sums of a token's
// slabs, makes its coefficients and scales x.
#pragma once

#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"

namespace ecphory::cuda::four {

// Tokens of a launch: the sums of more would take much memory.
inline constexpr size_t kFewBatch = 1024;

inline constexpr unsigned kFinishThreads = 256;
// float4 of x that a thread holds.
inline constexpr int kHeld = kMaxFewDim / (4 * kFinishThreads);

// The output that a thread makes something of, or kOutputs: comb by the first
// warp, which has most to do with it, pre and post by the second.
__device__ inline unsigned OutputOf() {
  constexpr unsigned kFirst = 2 * kStreams;
  if (threadIdx.x < kOutputs - kFirst) return kFirst + threadIdx.x;
  const unsigned o = threadIdx.x - kWarp;
  return threadIdx.x >= kWarp && o < kFirst ? o : kOutputs;
}

// A block a token. Slabs adds up the sums of a token; T are the streams'
// values. kReady: x holds the collapsed vector. Otherwise it is made here, from
// this site's own pre.
template <typename Slabs, typename T, bool kReady>
__global__ void __launch_bounds__(kFinishThreads)
    FinishKernel(HcSplitArgs a, const float* sums) {
  __shared__ float shared[kWarp];
  __shared__ __align__(16) typename Slabs::Shared groups;
  __shared__ __align__(16) float m[kSums];
  __shared__ __align__(16) float comb[kStreams * kStreams];
  __shared__ __align__(16) float pre[kStreams];
  const size_t t = blockIdx.x, dim = a.dim, slabs = Slabs::Of(dim);
  const unsigned output = OutputOf();
  const Affine affine(a, output);
  float4 weight[kHeld], x[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
    if (c < dim) weight[i] = Load(a.norm_weight + c);
  }
  LetNextStart();
  WaitForEarlier();
  if (kReady) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
      if (c < dim) x[i] = Load(a.x + t * dim + c);
    }
  }
  Slabs::Add(sums + t * slabs * Slabs::kSums, slabs, groups, m);
  if (output < kOutputs) StoreOutput(a, t, m, output, affine, pre, comb);
  if (threadIdx.x < kWarp) {
    __syncwarp();
    if (threadIdx.x == 0) Sinkhorn(comb, a.sinkhorn_iters, a.hc_eps);
    __syncwarp();
    constexpr unsigned kSize = kStreams * kStreams;
    if (threadIdx.x < kSize)
      a.comb[t * kSize + threadIdx.x] = comb[threadIdx.x];
  }
  float x2 = m[kCollapsed];
  if (!kReady) {
    __syncthreads();
    const float4 own = Load(pre);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
      if (c >= dim) continue;
      float4 h[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) {
        h[s] = Load(ValuesOf<T>(a.h) + (t * kStreams + s) * dim + c);
      }
      x[i] = Collapse<T>(own, h);
      sum = SumOfSquares(x[i], sum);
    }
    x2 = BlockSum<kFinishThreads>(sum, shared);
  }
  const float factor = 1.0f / sqrtf(x2 / static_cast<float>(dim) + a.norm_eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
    if (c >= dim) continue;
    Store(a.x + t * dim + c, Normalised<T>(weight[i], x[i], factor));
  }
}

template <typename Slabs, typename T>
void LaunchFinish(const HcSplitArgs& a, const float* sums) {
  LaunchOverlapped(a.collapse_pre != nullptr ? FinishKernel<Slabs, T, true>
                                             : FinishKernel<Slabs, T, false>,
                   dim3(static_cast<unsigned>(a.tokens)), kFinishThreads, 0,
                   "hc_split: coefficients", a, sums);
}

}  // namespace ecphory::cuda::four
