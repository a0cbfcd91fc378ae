// Top-k of many entries by a cluster of 8 blocks a token. Every block takes an
// eighth of the entries into shared memory, once. First a bound: of the best
// score of each thread, the k-th best, by its upper bits; no entry below it is
// among the k best. Then the k-th best of the few entries above, by all bits.
// Both eight bits at a time, by histograms that the blocks add up in each
// other's memory. At last every warp writes its part of the chosen in order,
// ties to the lower entry.
#include <cooperative_groups.h>

#include <algorithm>

#include "ops/cuda/overlap.cuh"
#include "ops/cuda/select.cuh"
#include "ops/cuda/shared_limit.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kBlocks = 8;
constexpr unsigned kThreads = 512, kWarps = kThreads / kWarp;
constexpr unsigned kBins = 256, kBoundPasses = 2, kCutPasses = 4;
// Fewer entries are faster in one block, and more do not fit.
constexpr size_t kFewest = 4096, kMost = size_t{kBlocks} * 40960;

struct Counts {
  unsigned above, ties;
};

struct Shared {
  unsigned bins[kBoundPasses + kCutPasses][kBins];
  unsigned sums[kWarps];
  Cut cut;
  Counts warps[kWarps];
  Counts block;
  unsigned newest;    // the block's last entry that can be chosen, plus 1
  uint32_t codes[1];  // of the block's entries
};

#if __CUDA_ARCH__ >= 900

template <typename T>
__device__ T* Of(unsigned block, T* mine) {
  return cooperative_groups::this_cluster().map_shared_rank(mine, block);
}
__device__ void Meet() { cooperative_groups::this_cluster().sync(); }

// A block's entries: [begin, begin + count).
struct Slice {
  __device__ explicit Slice(size_t entries) {
    const size_t each = CeilDiv(entries, kBlocks);
    begin = min(blockIdx.x % kBlocks * each, entries);
    count = static_cast<unsigned>(min(each, entries - begin));
  }
  size_t begin;
  unsigned count;
};

__device__ void ClearBins(Shared& shared) {
  unsigned* const bins = &shared.bins[0][0];
  for (unsigned i = threadIdx.x; i < sizeof(shared.bins) / sizeof(*bins);
       i += kThreads) {
    bins[i] = 0;
  }
}

// The sum of `value` over the threads before, and over all.
__device__ unsigned Prefix(unsigned value, Shared& shared) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  unsigned sum = value;
  for (unsigned offset = 1; offset < kWarp; offset *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == kWarp - 1) shared.sums[warp] = sum;
  __syncthreads();
  unsigned before = 0;
  for (unsigned w = 0; w < warp; ++w) before += shared.sums[w];
  return before + sum - value;
}

// The bin, counted from the top, in which the wanted entry lies, over the
// whole cluster; every block finds the same. Leaves shared.cut.
__device__ void FindBin(const unsigned (&bins)[kBins], unsigned shift,
                        uint32_t prefix, unsigned wanted, Shared& shared) {
  // A bin a thread, the largest codes first.
  const unsigned bin = kBins - 1 - threadIdx.x;
  unsigned count = 0;
  if (threadIdx.x < kBins) {
#pragma unroll
    for (unsigned block = 0; block < kBlocks; ++block) {
      count += *Of(block, &bins[bin]);
    }
  }
  if (threadIdx.x == 0) shared.cut = {0, 0};  // fewer than wanted
  const unsigned before = Prefix(count, shared);
  if (before < wanted && before + count >= wanted) {
    shared.cut = {prefix | bin << shift, wanted - before};
  }
  __syncthreads();
}

// The cut that takes `wanted` of the codes that are not 0, or all: by their
// upper 8 * kPasses bits. `each(add)` calls add(code) for the thread's codes.
template <unsigned kPasses, typename Each>
__device__ Cut FindCut(unsigned wanted, unsigned (*bins)[kBins], Shared& shared,
                       const Each& each) {
  uint32_t prefix = 0, mask = 0;
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const unsigned shift = 24 - 8 * pass;
    each([&](uint32_t code) {
      if (code != 0 && (code & mask) == prefix) {
        atomicAdd(&bins[pass][code >> shift & (kBins - 1)], 1u);
      }
    });
    Meet();
    FindBin(bins[pass], shift, prefix, wanted, shared);
    const Cut cut = shared.cut;
    __syncthreads();
    if (cut.code == 0 && cut.ties == 0) return cut;
    prefix = cut.code;
    wanted = cut.ties;
    mask |= (kBins - 1) << shift;
  }
  return {prefix, wanted};
}

// The cut that takes `wanted` of the cluster's entries whose code is not 0, or
// all.
__device__ Cut FindCut(unsigned count, unsigned wanted, Shared& shared) {
  uint32_t best = 0;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) {
    best = max(best, shared.codes[i]);
  }
  const uint32_t bound =
      FindCut<kBoundPasses>(wanted, shared.bins, shared, [&](const auto& add) {
        add(best);
      }).code;
  return FindCut<kCutPasses>(
      wanted, shared.bins + kBoundPasses, shared, [&](const auto& add) {
        for (unsigned i = threadIdx.x; i < count; i += kThreads) {
          const uint32_t code = shared.codes[i];
          if (code >= bound) add(code);
        }
      });
}

// A warp's entries lie together: [begin, end) of the block's.
struct WarpSlice {
  __device__ explicit WarpSlice(unsigned count) {
    const unsigned each =
        static_cast<unsigned>(CeilDiv(count, kThreads)) * kWarp;
    begin = min(threadIdx.x / kWarp * each, count);
    end = min(begin + each, count);
  }
  unsigned begin, end;
};

// Which of the warp's lanes hold an entry above the cut, and at it.
struct Lanes {
  __device__ Lanes(const Shared& shared, unsigned i, unsigned end, Cut cut) {
    const uint32_t code = i < end ? shared.codes[i] : 0;
    above = __ballot_sync(0xffffffffu, code > cut.code);
    ties = __ballot_sync(0xffffffffu, code != 0 && code == cut.code);
  }
  unsigned above, ties;
};

__device__ Counts Sum(Counts a, Counts b) {
  return {a.above + b.above, a.ties + b.ties};
}

// Calls take(i, rank) for the chosen of the block's entries; returns how many
// the cluster has chosen.
template <typename Take>
__device__ unsigned TakeChosen(unsigned count, Cut cut, Shared& shared,
                               const Take& take) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned rank = blockIdx.x % kBlocks;
  const WarpSlice slice(count);
  Counts mine{0, 0};
  for (unsigned i = slice.begin; i < slice.end; i += kWarp) {
    const Lanes lanes(shared, i + lane, slice.end, cut);
    mine = Sum(mine, {static_cast<unsigned>(__popc(lanes.above)),
                      static_cast<unsigned>(__popc(lanes.ties))});
  }
  if (lane == 0) shared.warps[warp] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    Counts sum{0, 0};
    for (unsigned w = 0; w < kWarps; ++w) {
      const Counts of_warp = shared.warps[w];
      shared.warps[w] = sum;
      sum = Sum(sum, of_warp);
    }
    shared.block = sum;
  }
  Meet();
  Counts before = shared.warps[warp], all{0, 0};
  for (unsigned block = 0; block < kBlocks; ++block) {
    const Counts of_block = *Of(block, &shared.block);
    if (block < rank) before = Sum(before, of_block);
    all = Sum(all, of_block);
  }
  const unsigned below = (1u << lane) - 1;
  for (unsigned i = slice.begin; i < slice.end; i += kWarp) {
    const Lanes lanes(shared, i + lane, slice.end, cut);
    const unsigned above = before.above + __popc(lanes.above & below);
    const unsigned ties = before.ties + __popc(lanes.ties & below);
    const bool is_above = (lanes.above >> lane & 1) != 0;
    const bool is_tie = (lanes.ties >> lane & 1) != 0 && ties < cut.ties;
    if (is_above || is_tie) take(i + lane, above + min(ties, cut.ties));
    before = Sum(before, {static_cast<unsigned>(__popc(lanes.above)),
                          static_cast<unsigned>(__popc(lanes.ties))});
  }
  return all.above + min(all.ties, cut.ties);
}

#endif

// blockIdx: tokens, calls.
template <unsigned kMost>
__global__ void __launch_bounds__(kThreads) SelectKernel(
    const __grid_constant__ KernelCalls<SelectTopkArgs, kMost> calls) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  LetNextStart();
  WaitForEarlier();
  const SelectTopkArgs& a = calls[blockIdx.y];
  const size_t t = blockIdx.x / kBlocks;
  if (t >= a.tokens) return;  // the whole cluster
  const Slice slice(a.groups);
  const float* const scores = a.scores + t * a.groups + slice.begin;
  const uint8_t* const mask =
      a.mask == nullptr ? nullptr
                        : a.mask + t * CeilDiv(a.groups, a.block_size);
  const unsigned block_size = static_cast<unsigned>(a.block_size);
  ClearBins(shared);
#pragma unroll 8
  for (unsigned i = threadIdx.x; i < slice.count; i += kThreads) {
    const unsigned g = static_cast<unsigned>(slice.begin) + i;
    const bool candidate = mask == nullptr || mask[g / block_size] != 0;
    shared.codes[i] = candidate ? CodeOf(scores[i]) : 0;
  }
  __syncthreads();
  const Cut cut = FindCut(slice.count, static_cast<unsigned>(a.topk), shared);
  int32_t* const selected = a.selected + t * a.topk;
  const unsigned taken =
      TakeChosen(slice.count, cut, shared, [&](unsigned i, unsigned rank) {
        selected[rank] = static_cast<int32_t>(slice.begin + i);
      });
  if (blockIdx.x % kBlocks == 0) {
    for (size_t i = taken + threadIdx.x; i < a.topk; i += kThreads) {
      selected[i] = -1;
    }
  }
  Meet();  // nobody reads this block's memory any more
#endif
}

template <unsigned kMost>
__global__ void __launch_bounds__(kThreads) CandidateKernel(
    const __grid_constant__ KernelCalls<CandidateBlocksArgs, kMost> calls) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  LetNextStart();
  WaitForEarlier();
  const CandidateBlocksArgs& a = calls[blockIdx.y];
  const size_t t = blockIdx.x / kBlocks;
  if (t >= a.tokens) return;  // the whole cluster
  const size_t n_blocks = CeilDiv(a.groups, a.block_size);
  const Slice slice(n_blocks);
  const float* const scores = a.scores + t * a.groups;
  uint8_t* const mask = a.mask + t * n_blocks + slice.begin;
  ClearBins(shared);
  if (threadIdx.x == 0) shared.newest = 0;
  __syncthreads();
  unsigned newest_own = 0;
  for (unsigned i = threadIdx.x; i < slice.count; i += kThreads) {
    const size_t first = (slice.begin + i) * a.block_size;
    const size_t end = min(first + a.block_size, a.groups);
    uint32_t top = 0;
#pragma unroll 8
    for (size_t g = first; g < end; ++g) top = max(top, CodeOf(scores[g]));
    shared.codes[i] = top;
    mask[i] = 0;
    if (top != 0) newest_own = static_cast<unsigned>(slice.begin) + i + 1;
  }
  atomicMax(&shared.newest, __reduce_max_sync(0xffffffffu, newest_own));
  Meet();
  unsigned newest = 0;
  for (unsigned block = 0; block < kBlocks; ++block) {
    newest = max(newest, *Of(block, &shared.newest));
  }
  // The newest block is kept in any case and counts as one of them.
  const unsigned own = newest - 1 - static_cast<unsigned>(slice.begin);
  const bool here = newest != 0 && newest > slice.begin && own < slice.count;
  if (here && threadIdx.x == 0) {
    shared.codes[own] = 0;
    mask[own] = 1;
  }
  __syncthreads();
  if (newest != 0 && a.top_blocks > 1) {
    const Cut cut =
        FindCut(slice.count, static_cast<unsigned>(a.top_blocks - 1), shared);
    TakeChosen(slice.count, cut, shared,
               [&](unsigned i, unsigned) { mask[i] = 1; });
  }
  Meet();  // nobody reads this block's memory any more
#endif
}

size_t SharedBytes(size_t entries) {
  return offsetof(Shared, codes) + CeilDiv(entries, kBlocks) * sizeof(uint32_t);
}

template <typename Args, unsigned kMost>
void Launch(const char* name, void (*kernel)(const KernelCalls<Args, kMost>),
            const KernelCalls<Args, kMost>& of_kernel,
            std::span<const Args> calls, size_t entries) {
  const size_t tokens = Most(calls, &Args::tokens), n = calls.size();
  if (tokens == 0) return;
  const size_t shared = SharedBytes(entries);
  AllowSharedMemory(kernel, shared, name);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kBlocks;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(tokens) * kBlocks, static_cast<unsigned>(n));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = Current().stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  Note(cudaLaunchKernelEx(&config, kernel, of_kernel), name);
}

}  // namespace

bool TakesCluster(size_t entries) {
  return HasHopperCode() && entries >= kFewest && entries <= kMost &&
         FitsSharedMemory(SharedBytes(entries));
}

void ClusterSelectTopk(const Calls<SelectTopkArgs>& all) {
  const size_t entries = MostEntries(all);
  ForEachLaunch(all, [&]<unsigned kMost>(
                         const KernelCalls<SelectTopkArgs, kMost>& of_kernel,
                         auto calls) {
    Launch<SelectTopkArgs, kMost>("select_topk", SelectKernel<kMost>, of_kernel,
                                  calls, entries);
  });
}

void ClusterCandidateBlocks(const Calls<CandidateBlocksArgs>& all) {
  const size_t entries = MostEntries(all);
  ForEachLaunch(all,
                [&]<unsigned kMost>(
                    const KernelCalls<CandidateBlocksArgs, kMost>& of_kernel,
                    auto calls) {
                  Launch<CandidateBlocksArgs, kMost>("candidate_blocks",
                                                     CandidateKernel<kMost>,
                                                     of_kernel, calls, entries);
                });
}

}  // namespace ecphory::cuda
