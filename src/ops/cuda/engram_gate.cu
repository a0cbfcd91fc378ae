// A block a token: for each stream three sums, then the gated value is added.
#include "ops/engram_gate.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/math.cuh"
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

__global__ void __launch_bounds__(kThreads) Kernel(EngramGateArgs args) {
  __shared__ float shared[kWarp];
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

}  // namespace

void EngramGate(const EngramGateArgs& args, ThreadPool&) {
  if (args.tokens == 0) return;
  Kernel<<<static_cast<unsigned>(args.tokens), kThreads, 0, Current().stream>>>(
      args);
  NoteLaunch("engram_gate");
}

}  // namespace ecphory::cuda
