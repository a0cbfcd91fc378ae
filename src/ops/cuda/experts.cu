// Mixture of experts: the slots (token, choice) are grouped by expert, so that
// a block reads a row of an expert's weights once for all of its tokens.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/weight.cuh"
#include "ops/moe.h"

namespace ecphory::cuda {

namespace {

constexpr unsigned kWarps = 4;
constexpr unsigned kThreads = kWarps * kWarp;
// Slots of one expert whose products a warp sums together.
constexpr int kSlots = 4;

// Slots of every expert: slots[begin[e] .. begin[e + 1]).
struct Groups {
  int32_t* begin;  // [n_experts + 1]
  int32_t* slots;  // [tokens * topk]
};

// One block counts and orders; stable, so that results do not depend on timing.
__global__ void GroupKernel(const int32_t* ids, size_t slots, size_t experts,
                            Groups groups) {
  for (size_t e = threadIdx.x; e <= experts; e += blockDim.x) {
    int32_t before = 0;
    for (size_t s = 0; s < slots; ++s) before += ids[s] < static_cast<int>(e);
    groups.begin[e] = before;
  }
  __syncthreads();
  for (size_t e = threadIdx.x; e < experts; e += blockDim.x) {
    int32_t at = groups.begin[e];
    for (size_t s = 0; s < slots; ++s) {
      if (ids[s] == static_cast<int>(e)) {
        groups.slots[at++] = static_cast<int32_t>(s);
      }
    }
  }
}

// sums[i] = row `row` of `m` times x of the i-th of `count` slots.
template <typename XOf>
__device__ void DotSlots(const Matrix& m, size_t row, int count,
                         const XOf& x_of, float (&sums)[kSlots]) {
  for (int i = 0; i < kSlots; ++i) sums[i] = 0;
  for (size_t k = threadIdx.x % kWarp; k < m.cols; k += kWarp) {
    const float w = WeightValue(m, row, k);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (i < count) sums[i] = fmaf(w, x_of(i)[k], sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kSlots; ++i) sums[i] = WarpSum(sums[i]);
}

__device__ float MaybeRound(float x, bool round) {
  return round ? RoundToBF16(x) : x;
}

__device__ float Swiglu(const ExpertsArgs& a, float gate, float up,
                        float weight) {
  gate = MaybeRound(gate, a.round_bf16);
  up = MaybeRound(up, a.round_bf16);
  if (a.swiglu_limit > 0) {
    // Comparisons let a NaN through, which minima would hide.
    if (gate > a.swiglu_limit) gate = a.swiglu_limit;
    if (fabsf(up) > a.swiglu_limit) up = copysignf(a.swiglu_limit, up);
  }
  return MaybeRound(gate * Sigmoid(gate) * up * weight, a.round_bf16);
}

// hidden[slot][row] of the expert blockIdx.y, a warp a row.
__global__ void __launch_bounds__(kThreads)
    HiddenKernel(ExpertsArgs a, Groups groups, float* hidden) {
  const Expert expert = a.experts[blockIdx.y];
  const size_t row = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const size_t inner = expert.w1.rows;
  if (row >= inner) return;
  const int32_t end = groups.begin[blockIdx.y + 1];
  for (int32_t s = groups.begin[blockIdx.y]; s < end; s += kSlots) {
    const int count = min(kSlots, end - s);
    const auto x_of = [&](int i) {
      return a.x + groups.slots[s + i] / a.topk * a.dim;
    };
    float gate[kSlots], up[kSlots];
    DotSlots(expert.w1, row, count, x_of, gate);
    DotSlots(expert.w3, row, count, x_of, up);
    if (threadIdx.x % kWarp != 0) continue;
    for (int i = 0; i < count; ++i) {
      const size_t slot = static_cast<size_t>(groups.slots[s + i]);
      hidden[slot * inner + row] = Swiglu(a, gate[i], up[i], a.weights[slot]);
    }
  }
}

// out[slot][row] of the expert blockIdx.y.
__global__ void __launch_bounds__(kThreads)
    OutputKernel(ExpertsArgs a, Groups groups, const float* hidden,
                 float* out) {
  const Expert expert = a.experts[blockIdx.y];
  const size_t row = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (row >= a.dim) return;
  const int32_t end = groups.begin[blockIdx.y + 1];
  for (int32_t s = groups.begin[blockIdx.y]; s < end; s += kSlots) {
    const int count = min(kSlots, end - s);
    const auto x_of = [&](int i) {
      return hidden + groups.slots[s + i] * expert.w2.cols;
    };
    float sums[kSlots];
    DotSlots(expert.w2, row, count, x_of, sums);
    if (threadIdx.x % kWarp != 0) continue;
    for (int i = 0; i < count; ++i) {
      out[groups.slots[s + i] * a.dim + row] =
          MaybeRound(sums[i], a.round_bf16);
    }
  }
}

// y = the sum of a token's slots, in slot order.
__global__ void SumKernel(ExpertsArgs a, const float* out) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim;
  float sum = 0;
  for (size_t j = 0; j < a.topk; ++j) {
    sum += out[(t * a.topk + j) * a.dim + c];
  }
  a.y[i] = a.accumulate ? a.y[i] + sum : sum;
}

}  // namespace

void Experts(const ExpertsArgs& given, ThreadPool&) {
  if (given.tokens == 0) return;
  ExpertsArgs args = given;
  if (args.device_experts != nullptr) args.experts = args.device_experts;
  struct Begin;
  struct Slots;
  struct Hidden;
  struct Out;
  const size_t slots = args.tokens * args.topk;
  const Groups groups{Scratch<Begin, int32_t>(args.n_experts + 1),
                      Scratch<Slots, int32_t>(slots)};
  float* const hidden = Scratch<Hidden>(slots * args.inner);
  float* const out = Scratch<Out>(slots * args.dim);
  if (groups.begin == nullptr || groups.slots == nullptr || hidden == nullptr ||
      out == nullptr) {
    return;  // noted
  }
  const cudaStream_t stream = Current().stream;
  GroupKernel<<<1, 1024, 0, stream>>>(args.ids, slots, args.n_experts, groups);
  NoteLaunch("experts: group");
  const unsigned n = static_cast<unsigned>(args.n_experts);
  HiddenKernel<<<dim3(Blocks(args.inner, kWarps), n), kThreads, 0, stream>>>(
      args, groups, hidden);
  NoteLaunch("experts: gate and up");
  OutputKernel<<<dim3(Blocks(args.dim, kWarps), n), kThreads, 0, stream>>>(
      args, groups, hidden, out);
  NoteLaunch("experts: down");
  SumKernel<<<Blocks(args.tokens * args.dim, 256), 256, 0, stream>>>(args, out);
  NoteLaunch("experts: sum");
}

}  // namespace ecphory::cuda
