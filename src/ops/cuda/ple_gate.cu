// Per-layer n-gram injection: the gates of every token first (a block a token
// and stream), then the streams, a thread a channel, token after token, as the
// convolution's state is written while it is read.
#include "ops/ple_gate.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// Of one token and stream; 0 where shut.
struct Scales {
  float gate;
  float norm;
};

__device__ float GateOf(float dot) {
  if (dot == 0) return 0.5f;
  return Sigmoid(copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot));
}

__global__ void __launch_bounds__(kThreads)
    GateKernel(PleGateArgs a, Scales* scales) {
  __shared__ float shared[kWarp];
  const size_t s = blockIdx.x, t = blockIdx.y, dim = a.dim;
  const size_t at = t * a.streams + s;
  Scales result{0, 0};
  if (a.shut == nullptr || a.shut[t] == 0) {
    const float* const x = a.x + at * dim;
    const float* const key = a.key + at * dim;
    const float* const value = a.value + t * dim;
    float dot = 0, x2 = 0, k2 = 0, v2 = 0;
    for (size_t i = threadIdx.x; i < dim; i += kThreads) {
      const float kw = 1.0f + a.key_weight[s * dim + i];
      const float qw = 1.0f + a.query_weight[s * dim + i];
      dot = fmaf(key[i] * kw, x[i] * qw, dot);
      x2 = fmaf(x[i], x[i], x2);
      k2 = fmaf(key[i], key[i], k2);
      v2 = fmaf(value[i], value[i], v2);
    }
    dot = BlockSum<kThreads>(dot, shared);
    x2 = BlockSum<kThreads>(x2, shared);
    k2 = BlockSum<kThreads>(k2, shared);
    v2 = BlockSum<kThreads>(v2, shared);
    const float n = static_cast<float>(dim);
    dot *= rsqrtf(k2 / n + a.eps) * rsqrtf(x2 / n + a.eps) / sqrtf(n);
    result.gate = GateOf(dot);
    result.norm =
        result.gate / sqrtf(result.gate * result.gate * v2 / n + a.eps);
  }
  if (threadIdx.x != 0) return;
  scales[at] = result;
  if (a.gate != nullptr) a.gate[at] = result.gate;
}

__device__ float Convolve(const PleGateArgs& a, size_t channel, size_t position,
                          float now) {
  const float* const weight = a.conv_weight + channel * a.kernel;
  const size_t channels = a.streams * a.dim;
  float sum = weight[a.kernel - 1] * now;
  for (size_t j = 0; j + 1 < a.kernel; ++j) {
    const size_t back = (a.kernel - 1 - j) * a.dilation;
    if (back > position) continue;
    const size_t row = (position - back) % a.state_rows;
    sum = fmaf(weight[j], a.state[row * channels + channel], sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    InjectKernel(PleGateArgs a, const Scales* scales) {
  const size_t channels = a.streams * a.dim;
  const size_t channel = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (channel >= channels) return;
  const size_t s = channel / a.dim, i = channel % a.dim;
  for (size_t t = 0; t < a.tokens; ++t) {
    const bool shut = a.shut != nullptr && a.shut[t] != 0;
    const Scales scale = scales[t * a.streams + s];
    float c = 0;
    if (!shut) {
      const float value = a.value[t * a.dim + i];
      c = value * scale.norm * (1.0f + a.conv_norm_weight[channel]);
      const float z = Convolve(a, channel, a.position + t, c);
      float* const x = a.x + t * channels + channel;
      *x += scale.gate * value + z * Sigmoid(z);
    }
    if (a.state_rows == 0) continue;
    a.state[(a.position + t) % a.state_rows * channels + channel] = c;
  }
}

}  // namespace

void PleGate(const PleGateArgs& args, ThreadPool&) {
  if (args.tokens == 0) return;
  struct Gates;
  Scales* const scales = Scratch<Gates, Scales>(args.tokens * args.streams);
  if (scales == nullptr) return;
  const dim3 grid(static_cast<unsigned>(args.streams),
                  static_cast<unsigned>(args.tokens));
  GateKernel<<<grid, kThreads, 0, Current().stream>>>(args, scales);
  NoteLaunch("ple_gate: gates");
  InjectKernel<<<Blocks(args.streams * args.dim, kThreads), kThreads, 0,
                 Current().stream>>>(args, scales);
  NoteLaunch("ple_gate: streams");
}

}  // namespace ecphory::cuda
