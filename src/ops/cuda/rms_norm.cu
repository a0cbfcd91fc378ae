// A block a row: the sum of squares, then the scaled values.
#include "ops/rms_norm.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads) Kernel(RmsNormArgs args) {
  __shared__ float shared[kWarp];
  const float* const x = args.x + blockIdx.x * args.dim;
  float* const y = args.y + blockIdx.x * args.dim;
  float sum = 0;
  for (size_t i = threadIdx.x; i < args.dim; i += kThreads) sum += x[i] * x[i];
  sum = BlockSum<kThreads>(sum, shared);
  const float factor =
      1.0f / sqrtf(sum / static_cast<float>(args.dim) + args.eps);
  for (size_t i = threadIdx.x; i < args.dim; i += kThreads) {
    const float weight = args.weight != nullptr ? args.weight[i] : 1.0f;
    y[i] = weight * x[i] * factor;
  }
}

}  // namespace

void RmsNorm(const RmsNormArgs& args, ThreadPool&) {
  if (args.rows == 0) return;
  Kernel<<<static_cast<unsigned>(args.rows), kThreads, 0, Current().stream>>>(
      args);
  NoteLaunch("rms_norm");
}

}  // namespace ecphory::cuda
