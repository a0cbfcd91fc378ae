// A block a row: the sum of squares, then the scaled values.
#include "ops/rms_norm.h"

#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int kHeld = 5;  // vectors of four that a thread holds

__global__ void __launch_bounds__(kThreads) Kernel(RmsNormArgs args) {
  __shared__ float shared[kWarp];
  LetNextStart();
  WaitForEarlier();
  const float* const x = args.x + blockIdx.x * args.dim;
  float* const y = args.y + blockIdx.x * args.dim;
  float sum = 0;
  for (size_t i = threadIdx.x; i < args.dim; i += kThreads) sum += x[i] * x[i];
  sum = BlockSum<kThreads>(sum, shared);
  const float factor =
      1.0f / sqrtf(sum / static_cast<float>(args.dim) + args.eps);
  for (size_t i = threadIdx.x; i < args.dim; i += kThreads) {
    const float weight = args.weight != nullptr ? args.weight[i] : 1.0f;
    y[i] = MaybeRound(weight * x[i] * factor, args.round_bf16);
  }
}

// Rows that fit into registers, read at once.
__global__ void __launch_bounds__(kThreads) HeldKernel(RmsNormArgs args) {
  __shared__ float shared[kWarp];
  const size_t vectors = args.dim / 4, row = blockIdx.x * vectors;
  const auto for_each = [&](const auto& body) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const size_t i = threadIdx.x + j * size_t{kThreads};
      if (i < vectors) body(j, i);
    }
  };
  float4 weight[kHeld], x[kHeld];
  for_each([&](int j, size_t i) {
    weight[j] = args.weight != nullptr
                    ? reinterpret_cast<const float4*>(args.weight)[i]
                    : make_float4(1, 1, 1, 1);
  });
  LetNextStart();
  WaitForEarlier();
  for_each([&](int j, size_t i) {
    x[j] = reinterpret_cast<const float4*>(args.x)[row + i];
  });
  float sum = 0;
  for_each([&](int j, size_t) {
    sum += x[j].x * x[j].x + x[j].y * x[j].y;
    sum += x[j].z * x[j].z + x[j].w * x[j].w;
  });
  sum = BlockSum<kThreads>(sum, shared);
  const float factor =
      1.0f / sqrtf(sum / static_cast<float>(args.dim) + args.eps);
  for_each([&](int j, size_t i) {
    const auto out = [&](float w, float value) {
      return MaybeRound(w * value * factor, args.round_bf16);
    };
    reinterpret_cast<float4*>(args.y)[row + i] = {
        out(weight[j].x, x[j].x), out(weight[j].y, x[j].y),
        out(weight[j].z, x[j].z), out(weight[j].w, x[j].w)};
  });
}

bool FitsRegisters(const RmsNormArgs& args) {
  const uintptr_t places = reinterpret_cast<uintptr_t>(args.x) |
                           reinterpret_cast<uintptr_t>(args.y) |
                           reinterpret_cast<uintptr_t>(args.weight);
  return places % 16 == 0 && args.dim % 4 == 0 &&
         args.dim <= size_t{4} * kThreads * kHeld;
}

}  // namespace

void RmsNorm(const RmsNormArgs& args, ThreadPool&) {
  if (args.rows == 0) return;
  LaunchOverlapped(FitsRegisters(args) ? HeldKernel : Kernel,
                   dim3(static_cast<unsigned>(args.rows)), kThreads, 0,
                   "rms_norm", args);
}

}  // namespace ecphory::cuda
