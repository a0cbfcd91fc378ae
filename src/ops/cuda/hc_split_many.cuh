// What splits of many tokens share, H = 4: all but how a warp multiplies
// streams of one format.
//
// A cluster of 16 blocks takes 16 tokens after another, each block a sixteenth
// of the channels, whose part of fn stays in its registers: two slabs in each
// of the warps that multiply. Streams come through stages of shared memory,
// ahead, a box of all tokens and streams each; expanded ones go back from
// there. One warp asks for them, adds up the sums of the others and sends them
// to the block that makes a token's coefficients, a token of the 16 each, and
// the squares of the collapsed vectors to all; these wait in shared memory
// while the next tokens are multiplied. One more warp makes the factors of the
// norm and the coefficients. All wait for each other at barriers in shared
// memory only, group of tokens by group.
#pragma once

#include "ops/cuda/hc_split_many_memory.cuh"
#include "ops/cuda/hc_split_many_servants.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"

namespace ecphory::cuda::four {

#if __CUDA_ARCH__ >= 900

// load() brings a warp's part of fn to its registers. When all have theirs,
// streams and sums may come in its place.
template <typename W, typename Load>
__device__ void TakeFn(const HcSplitArgs& a, const Place& place,
                       ManyShared<W>& shared, const Load& load) {
  shared.weight[threadIdx.x] =
      a.norm_weight[place.rank * place.channels + threadIdx.x];
  WaitForPhase(&shared.fn, 0);
  load();
  ArriveAsOne(&shared.fn_taken);
  WaitForPhase(&shared.fn_taken, 0);
}

// x of a warp's channels, normed: 128 bytes of four tokens at a time.
template <typename W>
__device__ void WriteX(const HcSplitArgs& a, const Place& place, unsigned group,
                       ManyShared<W>& shared) {
  constexpr unsigned kRowLanes = kPair / 4, kRows = kWarp / kRowLanes;
  const Turn<W::kSlots> turn(group);
  const auto& x = shared.x[group % (W::kDelay + 1)][place.warp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned channel = lane % kRowLanes * 4;
  WaitForPhase(&shared.ready[turn.at], turn.parity);
  const float4 weight = Load(&shared.weight[place.warp * kPair + channel]);
  float* const to =
      a.x + place.rank * place.channels + place.warp * kPair + channel;
#pragma unroll
  for (unsigned first = 0; first < kTokens; first += kRows) {
    const unsigned token = first + lane / kRowLanes;
    const float factor = shared.factor[turn.at][token];
    const size_t t = place.FirstOf(group) + token;
    if (t >= place.end) continue;
    __stcs(reinterpret_cast<float4*>(to + t * a.dim),
           Normalised<typename W::Value>(weight, Load(&x[token][channel]),
                                         factor));
  }
}

template <typename W>
__device__ void InitBarriers(const Place& place, ManyShared<W>& shared) {
  InitBarrier(&shared.fn, 1);
  InitBarrier(&shared.fn_taken, place.warps);
  for (unsigned i = 0; i < kStages; ++i) {
    InitBarrier(&shared.full[i], 1);
    InitBarrier(&shared.left[i], place.warps);
  }
  if constexpr (W::kExpand) {
    InitBarrier(&shared.owed.there, 1);
    for (unsigned i = 0; i < kStages; ++i) {
      InitBarrier(&shared.owed.expanded[i], place.warps / W::kGroupStages);
    }
  }
  for (unsigned i = 0; i < W::kParts; ++i) {
    InitBarrier(&shared.summed[i], place.warps);
    InitBarrier(&shared.added[i], 1);
  }
  for (unsigned i = 0; i < W::kSlots; ++i) {
    InitBarrier(&shared.arrived[i], 1);
    InitBarrier(&shared.ready[i], 1);
    InitBarrier(&shared.taken[i], 1);
  }
  FenceBarriers();
}

// What a thread of the kernel does; multiply(place, memory) is what the warps
// do that multiply. They call WaitForEarlier() when they have fn.
template <typename W, typename Fn, typename Multiply>
__device__ void SplitMany(const HcSplitArgs& a, const CUtensorMap& streams,
                          const CUtensorMap& fn, const Multiply& multiply) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const Memory<W> memory(bytes, a.dim);
  const Place place(a);
  if (threadIdx.x == 0) InitBarriers(place, *memory.shared);
  __syncthreads();
  cooperative_groups::this_cluster().barrier_arrive();
  if (place.warp < place.warps) {
    multiply(place, memory);
  } else if (place.warp == place.warps) {
    if (threadIdx.x % kWarp == 0) FetchFn<Fn>(a, fn, place, memory);
    __syncwarp();
    WaitForEarlier();
    Add(a, streams, place, memory);
  } else {
    WaitForEarlier();
    Serve(a, place, *memory.shared);
  }
}

#endif

using SplitKernel = void (*)(HcSplitArgs, CUtensorMap, CUtensorMap);

// A launch of one cluster.
template <typename W>
class ManyLaunch {
 public:
  ManyLaunch(SplitKernel kernel, const HcSplitArgs& args) : kernel_(kernel) {
    attributes_[0].id = cudaLaunchAttributeClusterDimension;
    attributes_[0].val.clusterDim.x = kCluster;
    attributes_[0].val.clusterDim.y = attributes_[0].val.clusterDim.z = 1;
    attributes_[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes_[1].val.programmaticStreamSerializationAllowed = 1;
    config_.gridDim = dim3(kCluster);
    const size_t warps = args.dim / (kCluster * kPair) + kServants;
    config_.blockDim = dim3(static_cast<unsigned>(warps * kWarp));
    config_.dynamicSmemBytes = SharedBytes<W>(args.dim);
    config_.stream = Current().stream;
    config_.attrs = attributes_;
    config_.numAttrs = 2;
    AllowSharedMemory(kernel_, config_.dynamicSmemBytes, "hc_split: clusters");
    Note(cudaFuncSetAttribute(
             kernel_, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
         "hc_split: clusters");
  }
  // Clusters that run at a time: fewer than the multiprocessors suggest, since
  // a cluster lies within one of the device's larger units, and perhaps none.
  unsigned Places() {
    int places = 0;
    if (cudaOccupancyMaxActiveClusters(&places, kernel_, &config_) !=
        cudaSuccess) {
      (void)cudaGetLastError();
    }
    return static_cast<unsigned>(places);
  }
  void Run(const HcSplitArgs& args) {
    config_.gridDim.x *= std::min(Blocks(args.tokens, kTokens), Places());
    const CUtensorMap streams =
        MapStreams(args.h, args.tokens, kStreams, args.dim, kTokens,
                   StageColumns<W>(args.dim));
    Note(cudaLaunchKernelEx(&config_, kernel_, args, streams, MapFn(args)),
         "hc_split: clusters");
  }

 private:
  // A block's channels a box.
  static CUtensorMap MapFn(const HcSplitArgs& args) {
    const size_t row = args.fn.row_bytes(), bytes = row / kStreams;
    return MapRows(
        {.data = args.fn.data + args.fn.first_row * row,
         .bytes = bytes,
         .inner = kOutputs,
         .inner_bytes = row,
         .outer = kStreams,
         .outer_bytes = bytes,
         .box_inner = kOutputs,
         .box_columns = static_cast<unsigned>(bytes / kBoxBytes / kCluster)});
  }

  SplitKernel kernel_;
  cudaLaunchAttribute attributes_[2] = {};
  cudaLaunchConfig_t config_{};
};

// Tokens from which on these clusters win over the ways of few tokens.
inline constexpr size_t kFewestMany = 512;
// D is a multiple of this: two warps of 32 channels a block.
inline constexpr size_t kManyDimStep = 2 * kPair * kCluster;

template <typename W>
bool TakesMany(SplitKernel kernel, const HcSplitArgs& a) {
  return HasHopperCode() && a.tokens >= kFewestMany &&
         a.collapse_pre != nullptr && a.dim <= kMaxManyDim &&
         a.dim % kManyDimStep == 0 && FitsSharedMemory(SharedBytes<W>(a.dim)) &&
         ManyLaunch<W>(kernel, a).Places() > 0;
}

}  // namespace ecphory::cuda::four
