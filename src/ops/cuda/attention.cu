// A block takes one token and a few heads, a warp a head: rows are decoded into
// shared memory a tile at a time, and the softmax runs along with them, its
// maximum and sum kept and rescaled from tile to tile.
#include "ops/attention.h"

#include <algorithm>

#include "ops/cuda/attention.cuh"
#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kHeads = 8;  // of a block, a warp each
constexpr unsigned kThreads = kHeads * kWarp;
constexpr size_t kTileRows = kWarp;  // a lane a row while scores are computed

// Bytes of a packed row.
struct RowSizes {
  size_t window;
  size_t latent;
};

// tile[row][channel], a channel more than `dim` a row so that a warp reading
// one channel of 32 rows meets 32 banks.
__device__ void DecodeTile(const AttentionArgs& a, RowSizes bytes, size_t t,
                           const Span& span, size_t begin, size_t count,
                           float* tile) {
  for (size_t i = threadIdx.x; i < count * a.dim; i += kThreads) {
    const size_t r = i / a.dim, c = i % a.dim, row = begin + r;
    float value;
    if (row < span.window) {
      const size_t slot = (span.first + row) % a.window_capacity;
      value = RowValue(a.window_format, a.window_rows + slot * bytes.window,
                       a.dim, c);
    } else {
      const size_t id =
          static_cast<size_t>(a.selected[t * a.topk + row - span.window]);
      value = RowValue(a.latent_format, a.latent_rows + id * bytes.latent,
                       a.dim, c);
    }
    tile[r * (a.dim + 1) + c] = value;
  }
}

// kVectors * 32 >= dim channels of the sum, lane by lane. blockIdx: heads,
// tokens, calls.
template <int kVectors, unsigned kMost>
__global__ void __launch_bounds__(kThreads)
    Kernel(const __grid_constant__ KernelCalls<AttentionArgs, kMost> calls,
           RowSizes bytes) {
  extern __shared__ float shared[];
  __shared__ size_t counter;
  LetNextStart();
  WaitForEarlier();
  const AttentionArgs& a = calls[blockIdx.z];
  if (blockIdx.y >= a.tokens) return;
  float* const tile = shared;
  const size_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const size_t t = blockIdx.y, head = blockIdx.x * kHeads + warp;
  const bool active = head < a.heads;
  float* const q = shared + kTileRows * (a.dim + 1) + warp * a.dim;
  const size_t offset = (t * a.heads + head) * a.dim;
  for (size_t c = lane; active && c < a.dim; c += kWarp) q[c] = a.q[offset + c];
  const Span span = SpanOf(a, t, &counter);
  float sum[kVectors] = {};
  float top = active ? a.sink[head] : 0.0f;
  float weights = 1;  // the sink's own, relative to `top`
  for (size_t begin = 0; begin < span.rows; begin += kTileRows) {
    const size_t count = min(kTileRows, span.rows - begin);
    __syncthreads();
    DecodeTile(a, bytes, t, span, begin, count, tile);
    __syncthreads();
    if (!active) continue;
    float score = -INFINITY;
    if (lane < count) {
      float dot = 0;
      for (size_t c = 0; c < a.dim; ++c) {
        dot = fmaf(q[c], tile[lane * (a.dim + 1) + c], dot);
      }
      score = a.scale * dot;
    }
    const float new_top = fmaxf(top, WarpMax(score));
    const float rescale = expf(top - new_top);
    const float weight = lane < count ? expf(score - new_top) : 0.0f;
    weights = fmaf(weights, rescale, WarpSum(weight));
    top = new_top;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) sum[v] *= rescale;
    for (size_t r = 0; r < count; ++r) {
      const float w = __shfl_sync(0xffffffffu, weight, static_cast<int>(r));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const size_t c = v * kWarp + lane;
        if (c < a.dim) sum[v] = fmaf(w, tile[r * (a.dim + 1) + c], sum[v]);
      }
    }
  }
  if (!active) return;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const size_t c = v * kWarp + lane;
    if (c < a.dim) {
      a.out[offset + c] = MaybeRound(sum[v] / weights, a.round_bf16);
    }
  }
}

template <int kVectors, unsigned kMost>
void Launch(const KernelCalls<AttentionArgs, kMost>& of_kernel,
            std::span<const AttentionArgs> calls) {
  const AttentionArgs& args = calls[0];
  const size_t shared =
      (kTileRows * (args.dim + 1) + kHeads * args.dim) * sizeof(float);
  AllowSharedMemory(Kernel<kVectors, kMost>, shared, "attention");
  const dim3 grid(Blocks(args.heads, kHeads),
                  static_cast<unsigned>(Most(calls, &AttentionArgs::tokens)),
                  static_cast<unsigned>(calls.size()));
  LaunchOverlapped(Kernel<kVectors, kMost>, grid, kThreads, shared, "attention",
                   of_kernel,
                   RowSizes{RowBytes(args.window_format, args.dim),
                            RowBytes(args.latent_format, args.dim)});
}

}  // namespace

void Attention(const Calls<AttentionArgs>& all, ThreadPool&) {
  if (std::all_of(all.begin(), all.end(), TakesTensorCores)) {
    return TensorAttention(all);
  }
  ForEachLaunch(all, [&](const auto& of_kernel, auto calls) {
    if (Most(calls, &AttentionArgs::tokens) == 0) return;
    const size_t vectors = CeilDiv(calls[0].dim, kWarp);
    if (vectors <= 1) return Launch<1>(of_kernel, calls);
    if (vectors <= 4) return Launch<4>(of_kernel, calls);
    if (vectors <= 16) return Launch<16>(of_kernel, calls);
    Launch<32>(of_kernel, calls);
  });
}

}  // namespace ecphory::cuda
