// A split of few tokens of bf16 streams, H = 4, in one kernel: bound by its
// latency.
//
// A cluster of 16 blocks takes 8 tokens, each block a sixteenth of the
// channels, a pair of slabs a warp, whose part of fn is in registers before the
// kernel ahead has ended. The collapsed vectors stay there too, until each
// block has been sent the sums of all others, by way of shared memory: the
// squares of all tokens, and the rest of the one whose coefficients it makes.
// The sums are those of hc_split_few_bf16.cu, which takes a second kernel for
// them.
#include <cooperative_groups.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_bf16.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/overlap.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

constexpr unsigned kCluster = kWideParts;
constexpr unsigned kGroup = kTokens / 2;  // of a cluster
static_assert(kGroup <= kCluster);  // a block makes a token's coefficients
constexpr unsigned kMaxWarps = 10;
// More of them make no sense for few tokens.
constexpr int kMaxClusters = 16;
constexpr size_t kMaxDim = kMaxWarps * kPair * kCluster;

struct Shared {
  alignas(16) float part[kMaxWarps][kGroup][kSums];
  alignas(16) float sums[kCluster][kSums];  // of the block's token, by block
  float squares[kCluster][kGroup];
  float m[kSums];
  alignas(16) float comb[kStreams * kStreams];
  float own_pre[kStreams];
  uint64_t arrived;  // barrier: the sums of all blocks
};

__host__ __device__ constexpr unsigned WarpsOf(size_t dim) {
  return static_cast<unsigned>(CeilDiv(dim, size_t{kPair * kCluster}));
}

#if __CUDA_ARCH__ >= 900

// Four sums of a token over the block's warps; those of even and of odd pairs
// first.
__device__ float4 BlockSums(unsigned warps, const Shared& shared,
                            unsigned token, unsigned quad) {
  float4 sum[2] = {};
#pragma unroll
  for (unsigned w = 0; w < kMaxWarps; ++w) {
    if (w >= warps) continue;
    const float4 of_warp = Load(&shared.part[w][token][4 * quad]);
    float4& to = sum[w % 2];
    to = Plus(to, of_warp);
  }
  return Plus(sum[0], sum[1]);
}

// Every token's sums to the block that makes its coefficients, its squares of x
// to all.
__device__ void SendSums(unsigned rank, unsigned tokens, Shared& shared) {
  constexpr unsigned kQuads = kSums / 4, kSends = kQuads + kCluster;
  static_assert(kCollapsed == 4 * (kQuads - 1) + 1);
  const unsigned warps = blockDim.x / kWarp;
  for (unsigned i = threadIdx.x; i < tokens * kSends; i += blockDim.x) {
    const unsigned token = i / kSends, send = i % kSends;
    const float4 sums = BlockSums(warps, shared, token, min(send, kQuads - 1));
    const unsigned to = send < kQuads ? token : send - kQuads;
    const uint32_t barrier = PlaceIn(to, &shared.arrived);
    if (send < kQuads) {
      SendTo(PlaceIn(to, &shared.sums[rank][4 * send]), sums, barrier);
    } else {
      SendTo(PlaceIn(to, &shared.squares[rank][token]), sums.y, barrier);
    }
  }
}

// By the first warp.
__device__ void MakeCoefficients(const HcSplitArgs& a, size_t t,
                                 const Affine& affine, Shared& shared) {
  const unsigned lane = threadIdx.x;
  if (lane < kSums) {
    float sum = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r) sum += shared.sums[r][lane];
    shared.m[lane] = sum;
  }
  __syncwarp();
  if (lane < kOutputs) {
    StoreOutput(a, t, shared.m, lane, affine, shared.own_pre, shared.comb);
  }
  __syncwarp();
  if (lane == 0) Sinkhorn(shared.comb, a.sinkhorn_iters, a.hc_eps);
  __syncwarp();
  constexpr unsigned kSize = kStreams * kStreams;
  if (lane < kSize) a.comb[t * kSize + lane] = shared.comb[lane];
}

#endif

#if __CUDA_ARCH__ >= 900

// What a lane takes of a token: four channels of each of two slabs.
template <bool kExpand>
struct LaneToken {
  Coefficients c{};
  uint2 h[2][kStreams] = {};
  float4 y[2] = {};

  // All that is read is asked for at once.
  __device__ void Load(const HcSplitArgs& a, size_t t, size_t channel) {
    c = LoadCoefficients(a, t, kExpand);
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      const size_t first = channel + slab * kSlab;
      if (first >= a.dim) continue;
#pragma unroll
      for (int s = 0; s < kStreams; ++s) {
        const uint16_t* const at = At(a, t, first) + s * a.dim;
        h[slab][s] = {*reinterpret_cast<const uint32_t*>(at),
                      *reinterpret_cast<const uint32_t*>(at + 8)};
      }
      if (kExpand) y[slab] = LoadLane(a.y + t * a.dim + first);
    }
  }
  // The expand that is owed, here and in device memory.
  __device__ void ExpandAll(const HcSplitArgs& a, size_t t, size_t channel) {
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      const size_t first = channel + slab * kSlab;
      if (first >= a.dim) continue;
      float4 values[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) values[s] = Widened(h[slab][s]);
      Expand<uint16_t>(c, y[slab], values);
#pragma unroll
      for (int s = 0; s < kStreams; ++s) {
        h[slab][s] = Packed(values[s]);
        StoreLane(At(a, t, first) + s * a.dim, h[slab][s]);
      }
    }
  }

 private:
  static __device__ uint16_t* At(const HcSplitArgs& a, size_t t,
                                 size_t channel) {
    return ValuesOf<uint16_t>(a.h) + t * kStreams * a.dim + channel;
  }
};

#endif

template <bool kExpand, typename Fn>
__global__ void __launch_bounds__(kMaxWarps* kWarp, 1)
    ClusterKernel(HcSplitArgs a) {
#if __CUDA_ARCH__ >= 900
  __shared__ Shared shared;
  const auto cluster = cooperative_groups::this_cluster();
  const unsigned rank = cluster.block_rank(), warp = threadIdx.x / kWarp;
  const size_t first = blockIdx.x / kCluster * size_t{kGroup};
  const unsigned tokens = min(a.tokens - first, size_t{kGroup});
  if (threadIdx.x == 0) {
    constexpr unsigned kBytes = kCluster * sizeof(float);
    InitBarrier(&shared.arrived, 1);
    FenceBarriers();
    ArriveExpecting(&shared.arrived,
                    (tokens + (rank < tokens ? kSums : 0)) * kBytes);
  }
  cluster.barrier_arrive();
  const Lane lane;
  const size_t pair = rank * (blockDim.x / kWarp) + warp;
  const size_t channel = pair * kPair + 2 * lane.column;
  SlabFn fn[2] = {};
  float4 weight[2] = {};
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    if (channel + slab * kSlab >= a.dim) continue;
    fn[slab].Load<Fn>(a.fn, a.dim, lane, 2 * pair + slab);
    weight[slab] = LoadLane(a.norm_weight + channel + slab * kSlab);
  }
  const Affine affine(a, threadIdx.x);
  LetNextStart();
  WaitForEarlier();

  const unsigned token = lane.row;
  LaneToken<kExpand> of_token;
  if (token < tokens) {
    of_token.Load(a, first + token, channel);
    if (kExpand) of_token.ExpandAll(a, first + token, channel);
  }
  const float4 pre[1] = {of_token.c.pre};
  uint2 x[2];  // collapsed, by slab
  PairSums<1> sums;
  sums.Of(
      fn, pre,
      [&](int slab, LaneStreams& h) {
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
          h[s][0] = of_token.h[slab][s].x, h[s][2] = of_token.h[slab][s].y;
          h[s][1] = h[s][3] = 0;
        }
      },
      [&](int slab, int, uint2 part) { x[slab] = part; });
  if (token < tokens) sums.Put(lane, 0, shared.part[warp][token]);
  __syncthreads();
  cluster.barrier_wait();
  SendSums(rank, tokens, shared);
  // All that is sent here comes before a thread of the block ends.
  WaitForCluster(&shared.arrived, 0);
  if (token < tokens) {
    float x2 = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r) x2 += shared.squares[r][token];
    const float factor =
        1.0f / sqrtf(x2 / static_cast<float>(a.dim) + a.norm_eps);
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      const size_t of_slab = channel + slab * kSlab;
      if (of_slab >= a.dim) continue;
      StoreLane(a.x + (first + token) * a.dim + of_slab,
                Normalised<uint16_t>(weight[slab], Widened(x[slab]), factor));
    }
  }
  if (warp == 0 && rank < tokens) {
    MakeCoefficients(a, first + rank, affine, shared);
  }
#endif
}

template <bool kExpand>
auto KernelOf(WeightFormat fn) {
  switch (fn) {
    case WeightFormat::kF16: return ClusterKernel<kExpand, __half>;
    case WeightFormat::kBF16: return ClusterKernel<kExpand, __nv_bfloat16>;
    default: return ClusterKernel<kExpand, float>;
  }
}

// A launch of so many clusters.
struct Launch {
  Launch(size_t dim, unsigned clusters) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = kCluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(clusters * kCluster);
    config.blockDim = dim3(WarpsOf(dim) * kWarp);
    config.stream = Current().stream;
    config.attrs = attributes;
    config.numAttrs = 2;
  }
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
};

// How many clusters of 16 blocks the current device runs at a time, of the
// kernel that it runs fewest of. They are allowed them.
int CountClusters() {
  Launch launch(kMaxDim, 1);
  int fewest = kMaxClusters;
  const auto count = [&](auto kernel) {
    int places = 0;
    if (cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeNonPortableClusterSizeAllowed,
                             1) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&places, kernel, &launch.config) !=
            cudaSuccess) {
      (void)cudaGetLastError();
      places = 0;
    }
    fewest = std::min(fewest, places);
  };
  for (const WeightFormat fn :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16}) {
    count(KernelOf<false>(fn)), count(KernelOf<true>(fn));
  }
  return fewest;
}

// The same, asked once a device.
int Clusters() {
  constexpr int kUnknown = 0;  // counts are kept plus 1
  static std::array<std::atomic<int>, 64> known{};
  int device = 0;
  Note(cudaGetDevice(&device), "hc_split: cluster");
  if (static_cast<size_t>(device) >= known.size()) return CountClusters();
  std::atomic<int>& answer = known[static_cast<size_t>(device)];
  if (answer == kUnknown) answer = CountClusters() + 1;
  return answer - 1;
}

}  // namespace

bool TakesClusterBf16(const HcSplitArgs& a) {
  if (!HasHopperCode() || a.collapse_pre == nullptr || a.dim > kMaxDim ||
      a.tokens > kMaxClusters * kGroup) {
    return false;
  }
  // 2 to 8 tokens with an expand are faster in two kernels, and so are more
  // than one cluster a place.
  const bool two_kernels = a.y != nullptr && a.tokens > 1 && a.tokens <= kGroup;
  return !two_kernels &&
         Blocks(a.tokens, kGroup) <= static_cast<unsigned>(Clusters());
}

void HcSplitClusterBf16(const HcSplitArgs& args) {
  const Launch launch(args.dim, Blocks(args.tokens, kGroup));
  const auto kernel = args.y != nullptr ? KernelOf<true>(args.fn.format)
                                        : KernelOf<false>(args.fn.format);
  Note(cudaLaunchKernelEx(&launch.config, kernel, args), "hc_split: cluster");
}

}  // namespace ecphory::cuda
