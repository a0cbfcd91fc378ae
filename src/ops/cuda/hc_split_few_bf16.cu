// A split of few tokens of bf16 streams, H = 4, as hc_split_few.cu has it of
// fp32 ones, with the sums of hc_split_bf16.cuh.
#include <algorithm>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_bf16.cuh"
#include "ops/cuda/hc_split_finish.cuh"
#include "ops/cuda/overlap.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

// The streams of a token's channels in a slab, expanded if that is owed.
template <bool kExpand>
__device__ void LoadStreams(const HcSplitArgs& a, size_t t, size_t channel,
                            const Coefficients& c, uint2 (&h)[kStreams]) {
  uint16_t* const at = ValuesOf<uint16_t>(a.h) + t * kStreams * a.dim + channel;
  float4 values[kStreams];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) values[s] = LoadLane(at + s * a.dim);
  if (kExpand) {
    Expand<uint16_t>(c, LoadLane(a.y + t * a.dim + channel), values);
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    h[s] = Packed(values[s]);
    if (kExpand) StoreLane(at + s * a.dim, h[s]);
  }
}

// A warp a pair of slabs for up to 16 tokens.
template <bool kExpand, typename Fn>
__global__ void __launch_bounds__(kWarp)
    PairKernel(HcSplitArgs a, float* sums) {
  const Lane lane;
  const size_t dim = a.dim, slabs = dim / kSlab;
  const size_t first = 2 * size_t{blockIdx.x};  // slab
  const auto channel = [&](int slab) {
    return (first + slab) * kSlab + 2 * lane.column;
  };
  const auto token = [&](int i) {
    return blockIdx.y * size_t{kTokens} + lane.row + 8 * i;
  };
  SlabFn fn[2] = {};
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    if (first + slab < slabs) fn[slab].Load<Fn>(a.fn, dim, lane, first + slab);
  }
  LetNextStart();
  WaitForEarlier();

  Coefficients c[2] = {};
  float4 pre[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (token(i) >= a.tokens) continue;
    c[i] = LoadCoefficients(a, token(i), kExpand);
    pre[i] = c[i].pre;
  }
  const auto there = [&](int slab, int i) {
    return first + slab < slabs && token(i) < a.tokens;
  };
  PairSums<> pair;
  pair.Of(
      fn, pre,
      [&](int slab, LaneStreams& h) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint2 of_token[kStreams] = {};
          if (there(slab, i)) {
            LoadStreams<kExpand>(a, token(i), channel(slab), c[i], of_token);
          }
#pragma unroll
          for (int s = 0; s < kStreams; ++s) {
            h[s][i] = of_token[s].x, h[s][i + 2] = of_token[s].y;
          }
        }
      },
      [&](int slab, int i, uint2 x) {
        if (!there(slab, i) || a.collapse_pre == nullptr) return;
        StoreLane(a.x + token(i) * dim + channel(slab), Widened(x));
      });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (token(i) >= a.tokens) continue;
    pair.Put(lane, i, sums + (token(i) * gridDim.x + blockIdx.x) * kSums);
  }
}

// The sums of a token over its pairs of slabs.
struct Pairs {
  static constexpr size_t kSums = four::kSums;
  using Shared = float[kWideParts * 2][kSums];

  static __host__ __device__ size_t Of(size_t dim) {
    return CeilDiv(dim, size_t{2 * kSlab});
  }
  // Into m, by kFinishThreads.
  static __device__ void Add(const float* sums, size_t pairs, Shared& groups,
                             float* m) {
    constexpr unsigned kQuads = kSums / 4;
    const size_t of_part = CeilDiv(pairs, size_t{kWideParts});
    const size_t group = threadIdx.x / kQuads, quad = threadIdx.x % kQuads;
    if (group < kWideParts * 2) {
      const size_t begin = group / 2 * of_part;
      const size_t end = min(begin + of_part, pairs);
      float4 sum{};
#pragma unroll 5
      for (size_t pair = begin + group % 2; pair < end; pair += 2) {
        const float4 part = Load(sums + pair * kSums + 4 * quad);
        sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
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
void LaunchPairs(const HcSplitArgs& a, float* sums) {
  const dim3 grid(static_cast<unsigned>(Pairs::Of(a.dim)),
                  Blocks(a.tokens, kTokens));
  const auto kernel =
      a.fn.format == WeightFormat::kF32   ? PairKernel<kExpand, float>
      : a.fn.format == WeightFormat::kF16 ? PairKernel<kExpand, __half>
                                          : PairKernel<kExpand, __nv_bfloat16>;
  LaunchOverlapped(kernel, grid, kWarp, 0, "hc_split: pairs", a, sums);
}

}  // namespace

void HcSplitFewBf16(const HcSplitArgs& args) {
  struct Sums;
  float* const sums = Scratch<Sums>(std::min(args.tokens, kFewBatch) *
                                    Pairs::Of(args.dim) * Pairs::kSums);
  if (sums == nullptr) return;
  for (size_t first = 0; first < args.tokens; first += kFewBatch) {
    const HcSplitArgs batch =
        TokensOf(args, first, std::min(kFewBatch, args.tokens - first));
    args.y != nullptr ? LaunchPairs<true>(batch, sums)
                      : LaunchPairs<false>(batch, sums);
    LaunchFinish<Pairs, uint16_t>(batch, sums);
  }
}

}  // namespace ecphory::cuda
