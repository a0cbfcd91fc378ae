// A split of few tokens of fp32 streams, H = 4: bound by the latency of two
// kernels.
//   1. a warp a slab of 16 channels (320 of them at D = 5120) for up to 16
//      tokens: the owed expand, the collapse, and the slab's part of all sums;
//   2. a block a token: adds the slabs up, scales x, makes the coefficients.
// fn is on its way before the kernel ahead has ended.
#include <algorithm>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_finish.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/overlap.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

template <bool kExpand, typename Fn>
__global__ void __launch_bounds__(kWarp)
    SlabKernel(HcSplitArgs a, float* sums) {
  const Lane lane;
  const size_t dim = a.dim, slabs = dim / kSlab;
  const size_t first = blockIdx.x * size_t{kSlab} + 4 * lane.column;
  float4 fn[kStreams][3];
  const Fn* const weights = reinterpret_cast<const Fn*>(a.fn.data) +
                            (a.fn.first_row + lane.row) * a.fn.cols + first;
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      fn[s][n] = LoadFn(weights + 8 * n * a.fn.cols + s * dim);
    }
  }
  LetNextStart();
  WaitForEarlier();

  float4 h[2][kStreams] = {};
  SlabSums slab;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const size_t t = blockIdx.y * size_t{kTokens} + lane.row + 8 * i;
    if (t >= a.tokens) continue;
    float* const streams = ValuesOf<float>(a.h) + t * kStreams * dim + first;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) h[i][s] = Load(streams + s * dim);
    const float4 y = kExpand ? Load(a.y + t * dim + first) : float4{};
    const Coefficients c = LoadCoefficients(a, t, kExpand);
    const float4 x =
        TokenSlab<float, kExpand>(c, y, h[i], &slab.h2[i], &slab.x2[i]);
    if (kExpand) {
#pragma unroll
      for (int s = 0; s < kStreams; ++s) Store(streams + s * dim, h[i][s]);
    }
    if (a.collapse_pre != nullptr) Store(a.x + t * dim + first, x);
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) slab.Multiply(h[0][s], h[1][s], fn[s]);
  slab.AddLanes();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const size_t t = blockIdx.y * size_t{kTokens} + lane.row + 8 * i;
    if (t >= a.tokens) continue;
    slab.Put<false>(lane, i, sums + (t * slabs + blockIdx.x) * kSums);
  }
}

// The sums of a token over its slabs.
struct Slabs {
  static constexpr size_t kSums = four::kSums;
  using Shared = float[kWideParts * 2][kSums];

  static __device__ size_t Of(size_t dim) { return dim / kSlab; }
  // Into m, by kFinishThreads.
  static __device__ void Add(const float* sums, size_t slabs, Shared& groups,
                             float* m) {
    constexpr unsigned kQuads = kSums / 4;
    const size_t pairs = CeilDiv(slabs, size_t{2});
    const size_t of_part = CeilDiv(pairs, size_t{kWideParts});
    const size_t group = threadIdx.x / kQuads, quad = threadIdx.x % kQuads;
    if (group < kWideParts * 2) {
      const size_t begin = group / 2 * of_part;
      const size_t end = min(begin + of_part, pairs);
      float4 sum{};
#pragma unroll 5
      for (size_t pair = begin + group % 2; pair < end; pair += 2) {
        const float* const of_pair = sums + 2 * pair * kSums + 4 * quad;
        const float4 second =
            2 * pair + 1 < slabs ? Load(of_pair + kSums) : float4{};
        sum = Plus(sum, Plus(Load(of_pair), second));
      }
      Store(&groups[group][4 * quad], sum);
    }
    __syncthreads();
    if (threadIdx.x < kSums) {
      float sum = 0;
#pragma unroll
      for (unsigned part = 0; part < kWideParts; ++part) {
        sum +=
            groups[2 * part][threadIdx.x] + groups[2 * part + 1][threadIdx.x];
      }
      m[threadIdx.x] = sum;
    }
    __syncthreads();
  }
};

template <bool kExpand>
void LaunchSlabs(const HcSplitArgs& a, float* sums) {
  const dim3 grid(static_cast<unsigned>(a.dim / kSlab),
                  Blocks(a.tokens, kTokens));
  const auto kernel =
      a.fn.format == WeightFormat::kF32   ? SlabKernel<kExpand, float>
      : a.fn.format == WeightFormat::kF16 ? SlabKernel<kExpand, __half>
                                          : SlabKernel<kExpand, __nv_bfloat16>;
  LaunchOverlapped(kernel, grid, kWarp, 0, "hc_split: slabs", a, sums);
}

}  // namespace

void HcSplitFew(const HcSplitArgs& args) {
  struct Sums;
  float* const sums = Scratch<Sums>(std::min(args.tokens, kFewBatch) *
                                    args.dim / kSlab * kSums);
  if (sums == nullptr) return;
  for (size_t first = 0; first < args.tokens; first += kFewBatch) {
    const HcSplitArgs batch =
        TokensOf(args, first, std::min(kFewBatch, args.tokens - first));
    args.y != nullptr ? LaunchSlabs<true>(batch, sums)
                      : LaunchSlabs<false>(batch, sums);
    LaunchFinish<Slabs, float>(batch, sums);
  }
}

}  // namespace ecphory::cuda
