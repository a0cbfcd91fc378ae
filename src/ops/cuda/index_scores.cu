// A warp a key: the key is decoded into registers, four values a lane at a
// time, and multiplied with every head's query.
#include <algorithm>
#include <limits>

#include "ops/cuda/calls.cuh"
#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/index_scores.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/indexer.h"

namespace ecphory::cuda {

namespace {

constexpr unsigned kWarps = 8;
// Values of a key that a lane keeps: keys of up to 256 values, larger ones are
// decoded again for every head.
constexpr int kHeld = 8;

__device__ float Value(const IndexScoresArgs& a, const uint8_t* row, size_t i) {
  return i < a.dim ? RowValue(a.key_format, row, a.dim, i) : 0.0f;
}

__device__ float Score(const IndexScoresArgs& a, size_t t, const uint8_t* row) {
  const size_t lane = threadIdx.x % kWarp;
  float held[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) held[j] = Value(a, row, j * kWarp + lane);
  float total = 0;
  for (size_t head = 0; head < a.heads; ++head) {
    const float* const q = a.q + (t * a.heads + head) * a.dim;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const size_t i = j * kWarp + lane;
      if (i < a.dim) sum = fmaf(held[j], q[i], sum);
    }
    for (size_t i = kHeld * kWarp + lane; i < a.dim; i += kWarp) {
      sum = fmaf(Value(a, row, i), q[i], sum);
    }
    const float dot = WarpSum(sum);
    const float relu = dot < 0 ? 0.0f : dot;  // NaN stays NaN
    total = fmaf(relu, a.weights[t * a.heads + head], total);
  }
  return total * (a.key_scale * a.head_scale);
}

// blockIdx: keys, tokens, calls.
template <unsigned kMost>
__global__ void __launch_bounds__(kWarps* kWarp)
    Kernel(const __grid_constant__ KernelCalls<IndexScoresArgs, kMost> calls,
           size_t row_bytes) {
  LetNextStart();
  WaitForEarlier();
  const IndexScoresArgs& a = calls[blockIdx.z];
  const size_t g = blockIdx.x * size_t{kWarps} + threadIdx.x / kWarp;
  const size_t t = blockIdx.y;
  if (g >= a.groups || t >= a.tokens) return;
  const bool visible = g < (a.first_position + t + 1) / a.ratio;
  const bool candidate =
      a.mask == nullptr ||
      a.mask[t * CeilDiv(a.groups, a.block_size) + g / a.block_size] != 0;
  const float score = visible && candidate
                          ? Score(a, t, a.key_rows + g * row_bytes)
                          : -std::numeric_limits<float>::infinity();
  if (threadIdx.x % kWarp == 0) a.scores[t * a.groups + g] = score;
}

}  // namespace

void IndexScores(const Calls<IndexScoresArgs>& all, ThreadPool&) {
  if (std::all_of(all.begin(), all.end(), TakesTensorCores)) {
    return TensorIndexScores(all);
  }
  ForEachLaunch(all, [&]<unsigned kMost>(
                         const KernelCalls<IndexScoresArgs, kMost>& of_kernel,
                         std::span<const IndexScoresArgs> calls) {
    const size_t groups = Most(calls, &IndexScoresArgs::groups);
    const size_t tokens = Most(calls, &IndexScoresArgs::tokens);
    if (groups == 0 || tokens == 0) return;
    const dim3 grid(Blocks(groups, kWarps), static_cast<unsigned>(tokens),
                    static_cast<unsigned>(calls.size()));
    LaunchOverlapped(Kernel<kMost>, grid, kWarps * kWarp, 0, "index_scores",
                     of_kernel, RowBytes(calls[0].key_format, calls[0].dim));
  });
}

}  // namespace ecphory::cuda
