// mHC: expand and collapse, and which way a split is computed.
#include "ops/hyper_connection.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/streams.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// A thread a channel.
__global__ void __launch_bounds__(kThreads) ExpandKernel(HcExpandArgs a) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim, streams = a.streams;
  float* const column = a.h + t * streams * a.dim + c;
  float h[kMaxStreams];
  for (size_t s = 0; s < streams; ++s) h[s] = column[s * a.dim];
  ExpandChannel(a.post + t * streams, a.comb + t * streams * streams, a.y[i],
                streams, a.round_bf16, h);
  for (size_t s = 0; s < streams; ++s) column[s * a.dim] = h[s];
}

// H = 4, D a multiple of 4: a thread four channels, a token ceil(D / 1024)
// blocks.
__global__ void __launch_bounds__(kThreads) ExpandFourKernel(HcExpandArgs a) {
  const unsigned parts = CeilDiv(a.dim, 4 * kThreads);
  const size_t t = blockIdx.x / parts;
  const size_t c = 4 * (blockIdx.x % parts * kThreads + threadIdx.x);
  LetNextStart();
  WaitForEarlier();
  if (c >= a.dim) return;
  float* const column = a.h + t * four::kStreams * a.dim + c;
  float4 h[four::kStreams];
#pragma unroll
  for (int s = 0; s < four::kStreams; ++s)
    h[s] = four::Load(column + s * a.dim);
  const float4 y = four::Load(a.y + t * a.dim + c);
  four::Coefficients coefficients;
#pragma unroll
  for (int j = 0; j < four::kStreams; ++j) {
    coefficients.comb[j] =
        four::Load(a.comb + (t * four::kStreams + j) * four::kStreams);
  }
  coefficients.post = four::Load(a.post + t * four::kStreams);
  four::Expand(coefficients, y, a.round_bf16, h);
#pragma unroll
  for (int s = 0; s < four::kStreams; ++s)
    four::Store(column + s * a.dim, h[s]);
}

__global__ void __launch_bounds__(kThreads) CollapseKernel(HcCollapseArgs a) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim;
  a.x[i] = Collapsed(a.pre + t * a.streams, a.h + t * a.streams * a.dim + c, a);
}

bool TakesFour(const HcExpandArgs& a) {
  return a.streams == four::kStreams && a.dim % 4 == 0 && Aligned(a.y) &&
         Aligned(a.post) && Aligned(a.comb) && Aligned(a.h);
}

}  // namespace

void HcSplit(const HcSplitArgs& args, ThreadPool& pool) {
  if (args.tokens == 0) return;
  if (!TakesFour(args)) return HcSplitGeneric(args);
  if (!TakesMany(args)) return HcSplitFew(args);
  HcSplitArgs rest = args;
  if (args.y != nullptr) {
    // Together they were slower than one after another.
    HcExpand({.y = args.y,
              .post = args.last_post,
              .comb = args.last_comb,
              .tokens = args.tokens,
              .streams = args.streams,
              .dim = args.dim,
              .round_bf16 = args.round_bf16,
              .h = args.h},
             pool);
    rest.y = nullptr;
  }
  HcSplitMany(rest);
}

void HcHead(const HcHeadArgs& args, ThreadPool&) {
  if (args.tokens > 0) HcHeadGeneric(args);
}

void HcCollapse(const HcCollapseArgs& args, ThreadPool&) {
  const size_t items = args.tokens * args.dim;
  if (items == 0) return;
  LaunchOverlapped(CollapseKernel, dim3(Blocks(items, kThreads)), kThreads, 0,
                   "hc_collapse", args);
}

void HcExpand(const HcExpandArgs& args, ThreadPool&) {
  const size_t items = args.tokens * args.dim;
  if (items == 0) return;
  if (TakesFour(args)) {
    const size_t blocks = args.tokens * Blocks(args.dim, 4 * kThreads);
    LaunchOverlapped(ExpandFourKernel, dim3(static_cast<unsigned>(blocks)),
                     kThreads, 0, "hc_expand", args);
    return;
  }
  LaunchOverlapped(ExpandKernel, dim3(Blocks(items, kThreads)), kThreads, 0,
                   "hc_expand", args);
}

}  // namespace ecphory::cuda
