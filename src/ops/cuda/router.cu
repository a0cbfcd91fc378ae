// A warp a token: scores in registers, then top-k by repeated maximum.
#include <limits>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/moe.h"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = kWarp;

__device__ float Softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

// s[e] of every expert, in shared memory.
__device__ void Scores(const RouterArgs& a, const float* logits, float* s) {
  const auto logit = [&](size_t e) { return logits[e] / a.gate_temp; };
  if (a.score != RouterScoreKind::kSoftmax) {
    const bool sigmoid = a.score == RouterScoreKind::kSigmoid;
    for (size_t e = threadIdx.x; e < a.experts; e += kThreads) {
      s[e] = sigmoid ? Sigmoid(logit(e)) : sqrtf(Softplus(logit(e)));
    }
    return;
  }
  float top = -std::numeric_limits<float>::infinity();
  for (size_t e = threadIdx.x; e < a.experts; e += kThreads) {
    top = fmaxf(top, logit(e));
  }
  top = WarpMax(top);
  float sum = 0;
  for (size_t e = threadIdx.x; e < a.experts; e += kThreads) {
    s[e] = expf(logit(e) - top);
    sum += s[e];
  }
  sum = WarpSum(sum);
  for (size_t e = threadIdx.x; e < a.experts; e += kThreads) s[e] /= sum;
}

struct Best {
  float key;
  int id;  // -1: none yet
};

// As the definition compares: an untaken expert beats none, NaN never wins
// over what is there, ties keep the lower id.
__device__ Best Better(Best a, Best b) {
  if (a.id < 0 || b.id < 0) return a.id < 0 ? b : a;
  if (a.id > b.id) {
    const Best c = a;
    a = b;
    b = c;
  }
  return b.key > a.key ? b : a;
}

__global__ void Kernel(RouterArgs a) {
  extern __shared__ float shared[];
  LetNextStart();
  WaitForEarlier();
  float* const s = shared;
  float* const keys = shared + a.experts;
  bool* const taken = reinterpret_cast<bool*>(keys + a.experts);
  const size_t t = blockIdx.x;
  const bool image = a.image_mask != nullptr && a.image_mask[t] != 0;
  const float* const bias = image ? a.bias_image : a.bias;
  Scores(a, a.logits + t * a.experts, s);
  for (size_t e = threadIdx.x; e < a.experts; e += kThreads) {
    keys[e] = s[e] + bias[e];
    taken[e] = false;
  }
  __syncwarp();
  float sum = 0;
  for (size_t j = 0; j < a.topk; ++j) {
    Best best{0, -1};
    for (size_t e = threadIdx.x; e < a.experts; e += kThreads) {
      if (!taken[e]) best = Better(best, {keys[e], static_cast<int>(e)});
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const Best other{__shfl_xor_sync(0xffffffffu, best.key, offset),
                       __shfl_xor_sync(0xffffffffu, best.id, offset)};
      best = Better(best, other);
    }
    if (threadIdx.x == 0) {
      taken[best.id] = true;
      a.ids[t * a.topk + j] = best.id;
    }
    sum += s[best.id];
    __syncwarp();
  }
  const float divisor = a.normalize ? sum + 1e-20f : 1.0f;
  for (size_t j = threadIdx.x; j < a.topk; j += kThreads) {
    a.weights[t * a.topk + j] = s[a.ids[t * a.topk + j]] / divisor * a.scale;
  }
}

}  // namespace

void Router(const RouterArgs& args, ThreadPool&) {
  if (args.tokens == 0) return;
  const size_t shared = args.experts * (2 * sizeof(float) + sizeof(bool));
  LaunchOverlapped(Kernel, dim3(static_cast<unsigned>(args.tokens)), kThreads,
                   shared, "router", args);
}

}  // namespace ecphory::cuda
