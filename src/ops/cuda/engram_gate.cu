// A block takes one stream of a token: three sums, then the gated value is
// added. Bound by memory: (3 H + 1) * D values a token, each touched once. The
// streams, keys and values of a token stay in registers between the sums and
// the addition, and the product of the two weights for all tokens of a block.
#include "ops/engram_gate.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/streams.cuh"

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

// A thread's vectors of four values are this far apart.
constexpr int kStride = 4 * kThreads;
__device__ bool Inside(size_t dim, int i) {
  return 4 * threadIdx.x + i * kStride < dim;
}

// Four values of a stream as they lie in memory.
template <typename T>
using Raw = std::conditional_t<kBf16<T>, uint2, float4>;
__device__ float4 ValueOf(float4 raw) { return raw; }
__device__ float4 ValueOf(uint2 raw) { return Widened(raw); }
// A thread's part of a stream, its key and the value: kVectors times four of
// each, kThreads * 4 apart.
template <typename T, int kVectors>
struct Part {
  Raw<T> h[kVectors];
  float4 k[kVectors], v[kVectors];

  __device__ void Load(const EngramGateArgs& a, size_t t, size_t s) {
    const size_t dim = a.dim, streams = a.streams;
    const size_t first = 4 * threadIdx.x;
    const T* const stream = ValuesOf<T>(a.h) + (t * streams + s) * dim + first;
    const float* const keys = a.kv + t * (streams + 1) * dim + first;
    const float* const key = keys + s * dim;
    const float* const value = keys + streams * dim;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!Inside(dim, i)) continue;
      h[i] = *reinterpret_cast<const Raw<T>*>(stream + i * kStride);
      k[i] = cuda::Load(key + i * kStride);
      v[i] = cuda::Load(value + i * kStride);
    }
  }
};

// The same as the streams take it, in their format.
template <typename T, int kVectors>
struct Taken {
  Raw<T> h[kVectors], k[kVectors], v[kVectors];

  __device__ void Take(const Part<T, kVectors>& part) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      h[i] = part.h[i], k[i] = Packed(part.k[i]), v[i] = Packed(part.v[i]);
    }
  }
};
template <int kVectors>
struct Taken<float, kVectors> : Part<float, kVectors> {};

// Blocks s, s + H, s + 2H ... work on stream s. bf16 streams leave registers to
// have the next token's part on its way.
template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads, 2) VectorKernel(EngramGateArgs a) {
  __shared__ float4 shared[2][kThreads / kWarp];
  const size_t dim = a.dim, streams = a.streams, first = 4 * threadIdx.x;
  const size_t s = blockIdx.x % streams, step = gridDim.x / streams;
  float4 weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!Inside(dim, i)) continue;
    const float4 q = Load(a.q_weight + s * dim + first + i * kStride);
    const float4 k = Load(a.k_weight + s * dim + first + i * kStride);
    weight[i] = {q.x * k.x, q.y * k.y, q.z * k.z, q.w * k.w};
  }
  LetNextStart();
  WaitForEarlier();
  Part<T, kVectors> ahead;
  if constexpr (kBf16<T>) ahead.Load(a, blockIdx.x / streams, s);
  unsigned turn = 0;
  for (size_t t = blockIdx.x / streams; t < a.tokens; t += step) {
    Taken<T, kVectors> part;
    if constexpr (kBf16<T>) {
      part.Take(ahead);
      ahead.Load(a, min(t + step, a.tokens - 1), s);
    }
    float* const gate_out =
        a.gate == nullptr ? nullptr : a.gate + t * streams + s;
    if (a.shut != nullptr && a.shut[t] != 0) {
      if (threadIdx.x == 0 && gate_out != nullptr) *gate_out = 0;
      continue;
    }
    if constexpr (!kBf16<T>) part.Load(a, t, s);
    Sums sums;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!Inside(dim, i)) continue;
      Add(ValueOf(part.h[i]), weight[i], ValueOf(part.k[i]), sums);
    }
    const float gate = GateOf(a, BlockSums(sums, shared[turn]));
    turn ^= 1;
    T* const stream = ValuesOf<T>(a.h) + (t * streams + s) * dim + first;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!Inside(dim, i)) continue;
      const float4 x = ValueOf(part.h[i]), v = ValueOf(part.v[i]);
      Store(stream + i * kStride, {fmaf(gate, v.x, x.x), fmaf(gate, v.y, x.y),
                                   fmaf(gate, v.z, x.z), fmaf(gate, v.w, x.w)});
    }
    if (threadIdx.x == 0 && gate_out != nullptr) *gate_out = gate;
  }
}

// Streams whose length is no multiple of 4, or too long: a block a token.
template <typename T>
__global__ void __launch_bounds__(kThreads) Kernel(EngramGateArgs args) {
  __shared__ float shared[kWarp];
  LetNextStart();
  WaitForEarlier();
  const size_t t = blockIdx.x, dim = args.dim, streams = args.streams;
  const float* const keys = args.kv + t * (streams + 1) * dim;
  const float* const value = keys + streams * dim;
  const bool shut = args.shut != nullptr && args.shut[t] != 0;
  for (size_t s = 0; s < streams; ++s) {
    T* const h = ValuesOf<T>(args.h) + (t * streams + s) * dim;
    float gate = 0;
    if (!shut) {
      Sums sums;
      for (size_t i = threadIdx.x; i < dim; i += kThreads) {
        const float x = GetStream(h + i);
        const float k = RoundedFor<T>(keys[s * dim + i]);
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
        const float v = RoundedFor<T>(value[i]);
        SetStream(h + i, fmaf(gate, v, GetStream(h + i)));
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
         Aligned(a.h.data) && Aligned(a.kv) && Aligned(a.q_weight) &&
         Aligned(a.k_weight);
}

template <typename T, int kVectors>
void Launch(const EngramGateArgs& args) {
  const size_t places =
      std::max<size_t>(1, 2 * Multiprocessors() / args.streams);
  const size_t blocks = args.streams * std::min(args.tokens, places);
  LaunchOverlapped(VectorKernel<T, kVectors>,
                   dim3(static_cast<unsigned>(blocks)), kThreads, 0,
                   "engram_gate", args);
}

template <typename T>
void LaunchFor(const EngramGateArgs& args) {
  if (!TakesVectors(args)) {
    return LaunchOverlapped(Kernel<T>, dim3(static_cast<unsigned>(args.tokens)),
                            kThreads, 0, "engram_gate", args);
  }
  const size_t vectors = CeilDiv(args.dim, 4 * kThreads);
  if (vectors <= 1) return Launch<T, 1>(args);
  if (vectors <= 3) return Launch<T, 3>(args);
  Launch<T, kMaxVectors>(args);
}

}  // namespace

void EngramGate(const EngramGateArgs& args, ThreadPool&) {
  if (args.tokens == 0) return;
  WithStreamType(args.h.format,
                 [&](auto value) { LaunchFor<decltype(value)>(args); });
}

}  // namespace ecphory::cuda
