// A block takes one stream of a token: three sums, then the gated value is
// added. Bound by memory: (3 H + 1) * D values a token, each touched once. The
// streams, keys and values of a token stay in registers between the sums and
// the addition, and the product of the two weights for all tokens of a block.
#include "ops/engram_gate.h"

#include <algorithm>
#include <cstdint>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

struct Sums {
  float dot = 0;
  float h2 = 0;
  float k2 = 0;
};

__device__ float GateOf(const EngramGateArgs& args, const Sums& sums) {
  const float n = static_cast<float>(args.dim);
  const float norm = rsqrtf(sums.h2 / n + args.eps) *
                     rsqrtf(sums.k2 / n + args.eps) / sqrtf(n);
  const float dot = sums.dot * norm;
  return Sigmoid(args.sigmoid, copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot));
}

// The three sums over the block, in every thread. One barrier: the caller
// alternates between two pieces of shared memory.
__device__ Sums BlockSums(Sums sums, float4* shared) {
  sums = {WarpSum(sums.dot), WarpSum(sums.h2), WarpSum(sums.k2)};
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = {sums.dot, sums.h2, sums.k2, 0};
  }
  __syncthreads();
  sums = {};
#pragma unroll
  for (unsigned w = 0; w < kThreads / kWarp; ++w) {
    const float4 part = shared[w];
    sums.dot += part.x;
    sums.h2 += part.y;
    sums.k2 += part.z;
  }
  return sums;
}

__device__ void Add(float4 h, float4 w, float4 k, Sums& sums) {
  const auto add = [&](float x, float weight, float key) {
    sums.dot = fmaf(x * weight, key, sums.dot);
    sums.h2 = fmaf(x, x, sums.h2);
    sums.k2 = fmaf(key, key, sums.k2);
  };
  add(h.x, w.x, k.x), add(h.y, w.y, k.y);
  add(h.z, w.z, k.z), add(h.w, w.w, k.w);
}

// kVectors float4 a thread hold a stream. Blocks s, s + H, s + 2H ... work on
// stream s.
template <int kVectors>
__global__ void __launch_bounds__(kThreads, 2) VectorKernel(EngramGateArgs a) {
  __shared__ float4 shared[2][kThreads / kWarp];
  const size_t dim = a.dim, streams = a.streams;
  const size_t s = blockIdx.x % streams;
  const auto at = [&](const float* row, int i) {
    return reinterpret_cast<const float4*>(row) + threadIdx.x + i * kThreads;
  };
  const auto inside = [&](int i) {
    return 4 * (threadIdx.x + i * kThreads) < dim;
  };
  float4 weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!inside(i)) continue;
    const float4 q = *at(a.q_weight + s * dim, i);
    const float4 k = *at(a.k_weight + s * dim, i);
    weight[i] = {q.x * k.x, q.y * k.y, q.z * k.z, q.w * k.w};
  }
  LetNextStart();
  WaitForEarlier();
  unsigned turn = 0;
  for (size_t t = blockIdx.x / streams; t < a.tokens;
       t += gridDim.x / streams) {
    float* const gate_out =
        a.gate == nullptr ? nullptr : a.gate + t * streams + s;
    if (a.shut != nullptr && a.shut[t] != 0) {
      if (threadIdx.x == 0 && gate_out != nullptr) *gate_out = 0;
      continue;
    }
    float* const stream = a.h + (t * streams + s) * dim;
    const float* const keys = a.kv + t * (streams + 1) * dim;
    float4 h[kVectors], k[kVectors], v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!inside(i)) continue;
      h[i] = *at(stream, i);
      k[i] = *at(keys + s * dim, i);
      v[i] = *at(keys + streams * dim, i);
    }
    Sums sums;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (inside(i)) Add(h[i], weight[i], k[i], sums);
    }
    const float gate = GateOf(a, BlockSums(sums, shared[turn]));
    turn ^= 1;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!inside(i)) continue;
      *const_cast<float4*>(at(stream, i)) = {
          fmaf(gate, v[i].x, h[i].x), fmaf(gate, v[i].y, h[i].y),
          fmaf(gate, v[i].z, h[i].z), fmaf(gate, v[i].w, h[i].w)};
    }
    if (threadIdx.x == 0 && gate_out != nullptr) *gate_out = gate;
  }
}

// Streams whose length is no multiple of 4, or too long: a block a token.
__global__ void __launch_bounds__(kThreads) Kernel(EngramGateArgs args) {
  __shared__ float shared[kWarp];
  LetNextStart();
  WaitForEarlier();
  const size_t t = blockIdx.x, dim = args.dim, streams = args.streams;
  const float* const keys = args.kv + t * (streams + 1) * dim;
  const float* const value = keys + streams * dim;
  const bool shut = args.shut != nullptr && args.shut[t] != 0;
  for (size_t s = 0; s < streams; ++s) {
    float* const h = args.h + (t * streams + s) * dim;
    float gate = 0;
    if (!shut) {
      Sums sums;
      for (size_t i = threadIdx.x; i < dim; i += kThreads) {
        const float x = h[i], k = keys[s * dim + i];
        const float w = args.q_weight[s * dim + i] * args.k_weight[s * dim + i];
        sums.dot = fmaf(x * w, k, sums.dot);
        sums.h2 = fmaf(x, x, sums.h2);
        sums.k2 = fmaf(k, k, sums.k2);
      }
      sums.dot = BlockSum<kThreads>(sums.dot, shared);
      sums.h2 = BlockSum<kThreads>(sums.h2, shared);
      sums.k2 = BlockSum<kThreads>(sums.k2, shared);
      gate = GateOf(args, sums);
      for (size_t i = threadIdx.x; i < dim; i += kThreads) {
        h[i] = fmaf(gate, value[i], h[i]);
      }
    }
    if (threadIdx.x == 0 && args.gate != nullptr) {
      args.gate[t * streams + s] = gate;
    }
  }
}

// Two blocks' registers hold no more.
constexpr int kMaxVectors = 5;

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

bool TakesVectors(const EngramGateArgs& a) {
  return a.dim % 4 == 0 && a.dim <= 4 * kThreads * kMaxVectors &&
         Aligned(a.h) && Aligned(a.kv) && Aligned(a.q_weight) &&
         Aligned(a.k_weight);
}

template <int kVectors>
void Launch(const EngramGateArgs& args) {
  const size_t places =
      std::max<size_t>(1, 2 * Multiprocessors() / args.streams);
  const size_t blocks = args.streams * std::min(args.tokens, places);
  LaunchOverlapped(VectorKernel<kVectors>, dim3(static_cast<unsigned>(blocks)),
                   kThreads, 0, "engram_gate", args);
}

}  // namespace

void EngramGate(const EngramGateArgs& args, ThreadPool&) {
  if (args.tokens == 0) return;
  if (TakesVectors(args)) {
    const size_t vectors = CeilDiv(args.dim, 4 * kThreads);
    if (vectors <= 1) return Launch<1>(args);
    if (vectors <= 3) return Launch<3>(args);
    return Launch<kMaxVectors>(args);
  }
  LaunchOverlapped(Kernel, dim3(static_cast<unsigned>(args.tokens)), kThreads,
                   0, "engram_gate", args);
}

}  // namespace ecphory::cuda
