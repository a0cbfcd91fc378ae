// Top-k by the bits of the scores: a block a token finds the k-th best score,
// eight bits at a time by a histogram, and then writes the entries at or above
// it in order, ties to the lower entry.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/select.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/indexer.h"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kBins = 256;

struct Shared {
  unsigned bins[kBins];
  unsigned warps[kThreads / kWarp];
  unsigned total;
  Cut cut;
};

// Exclusive prefix sum over the block, and the total.
__device__ unsigned Prefix(unsigned value, Shared& shared, unsigned* total) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  unsigned sum = value;
  for (unsigned offset = 1; offset < kWarp; offset *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == kWarp - 1) shared.warps[warp] = sum;
  __syncthreads();
  unsigned before = 0, all = 0;
  for (unsigned w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) before += shared.warps[w];
    all += shared.warps[w];
  }
  __syncthreads();
  *total = all;
  return before + sum - value;
}

// From the top: the bin in which the wanted entry lies, as the cut. By a warp,
// each lane eight bins.
__device__ void FindBin(uint32_t prefix, int shift, unsigned wanted,
                        Shared& shared) {
  constexpr int kOwn = kBins / kWarp;
  const unsigned lane = threadIdx.x;
  const int top = static_cast<int>(kBins - 1 - lane * kOwn);
  unsigned own = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own += shared.bins[top - i];
  unsigned sum = own;
  for (unsigned offset = 1; offset < kWarp; offset *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (sum >= wanted && sum - own < wanted) {
    unsigned left = wanted - (sum - own);
    int bin = top;
    while (shared.bins[bin] < left) left -= shared.bins[bin--];
    shared.cut = {prefix | static_cast<uint32_t>(bin) << shift, left};
  }
  if (lane == kWarp - 1 && sum < wanted) shared.cut = {0, 0};  // fewer
}

// The cut that takes `count` of the entries whose code is not 0, or all when
// there are no more. `code_at(i)` for i < n.
template <typename CodeAt>
__device__ Cut FindCut(size_t n, size_t count, const CodeAt& code_at,
                       Shared& shared) {
  if (n <= count) return {0, 0};  // all of them
  uint32_t prefix = 0, mask = 0;
  unsigned wanted = static_cast<unsigned>(count);
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (unsigned b = threadIdx.x; b < kBins; b += kThreads) shared.bins[b] = 0;
    __syncthreads();
    for (size_t i = threadIdx.x; i < n; i += kThreads) {
      const uint32_t code = code_at(i);
      if (code != 0 && (code & mask) == prefix) {
        atomicAdd(&shared.bins[code >> shift & (kBins - 1)], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x < kWarp) FindBin(prefix, shift, wanted, shared);
    __syncthreads();
    const Cut cut = shared.cut;
    __syncthreads();
    if (cut.code == 0 && cut.ties == 0) return cut;
    prefix = cut.code;
    wanted = cut.ties;
    mask |= 0xffu << shift;
  }
  return {prefix, wanted};
}

// Calls take(i, rank) for the chosen entries in ascending order.
template <typename CodeAt, typename Take>
__device__ unsigned TakeChosen(size_t n, Cut cut, const CodeAt& code_at,
                               Shared& shared, const Take& take) {
  unsigned taken = 0, ties = 0;
  for (size_t base = 0; base < n; base += kThreads) {
    const size_t i = base + threadIdx.x;
    const uint32_t code = i < n ? code_at(i) : 0;
    const bool tie = code != 0 && code == cut.code;
    unsigned new_ties = 0, new_taken = 0;
    const unsigned tie_rank = ties + Prefix(tie, shared, &new_ties);
    const bool chosen =
        code != 0 && (code > cut.code || (tie && tie_rank < cut.ties));
    const unsigned rank = taken + Prefix(chosen, shared, &new_taken);
    if (chosen) take(i, rank);
    ties += new_ties;
    taken += new_taken;
  }
  return taken;
}

// blockIdx: tokens, calls.
template <unsigned kMost>
__global__ void __launch_bounds__(kThreads) SelectKernel(
    const __grid_constant__ KernelCalls<SelectTopkArgs, kMost> calls) {
  __shared__ Shared shared;
  LetNextStart();
  WaitForEarlier();
  const SelectTopkArgs& a = calls[blockIdx.y];
  const size_t t = blockIdx.x;
  if (t >= a.tokens) return;
  const float* const scores = a.scores + t * a.groups;
  const uint8_t* const mask =
      a.mask == nullptr ? nullptr
                        : a.mask + t * CeilDiv(a.groups, a.block_size);
  int32_t* const selected = a.selected + t * a.topk;
  const auto code_at = [&](size_t g) {
    if (mask != nullptr && mask[g / a.block_size] == 0) return 0u;
    return CodeOf(scores[g]);
  };
  const Cut cut = FindCut(a.groups, a.topk, code_at, shared);
  const unsigned taken =
      TakeChosen(a.groups, cut, code_at, shared, [&](size_t g, unsigned rank) {
        selected[rank] = static_cast<int32_t>(g);
      });
  for (size_t i = taken + threadIdx.x; i < a.topk; i += kThreads) {
    selected[i] = -1;
  }
}

// best[b]: the code of the best finite score of block b, for [calls, tokens];
// `most_blocks` of a token. blockIdx: tokens, calls.
template <unsigned kMost>
__global__ void __launch_bounds__(kThreads) CandidateKernel(
    const __grid_constant__ KernelCalls<CandidateBlocksArgs, kMost> calls,
    uint32_t* best, size_t most_blocks) {
  __shared__ Shared shared;
  __shared__ unsigned newest;
  LetNextStart();
  WaitForEarlier();
  const CandidateBlocksArgs& a = calls[blockIdx.y];
  const size_t t = blockIdx.x;
  if (t >= a.tokens) return;
  const size_t n_blocks = CeilDiv(a.groups, a.block_size);
  const float* const scores = a.scores + t * a.groups;
  uint8_t* const mask = a.mask + t * n_blocks;
  best += (blockIdx.y * size_t{gridDim.x} + t) * most_blocks;
  if (threadIdx.x == 0) newest = 0;
  __syncthreads();
  for (size_t b = threadIdx.x; b < n_blocks; b += kThreads) {
    uint32_t top = 0;
    const size_t end = min((b + 1) * a.block_size, a.groups);
    for (size_t g = b * a.block_size; g < end; ++g) {
      top = max(top, CodeOf(scores[g]));
    }
    best[b] = top;
    mask[b] = 0;
    if (top != 0) atomicMax(&newest, static_cast<unsigned>(b + 1));
  }
  __syncthreads();
  if (newest == 0) return;
  // The newest block is kept in any case and counts as one of them.
  const size_t last = newest - 1;
  if (threadIdx.x == 0) mask[last] = 1;
  if (a.top_blocks == 1) return;
  const auto code_at = [&](size_t b) { return best[b]; };
  const Cut cut = FindCut(last, a.top_blocks - 1, code_at, shared);
  TakeChosen(last, cut, code_at, shared,
             [&](size_t b, unsigned) { mask[b] = 1; });
}

}  // namespace

void SelectTopk(const Calls<SelectTopkArgs>& all, ThreadPool&) {
  if (TakesHeld(all)) return HeldSelectTopk(all);
  if (TakesCluster(MostEntries(all))) return ClusterSelectTopk(all);
  ForEachLaunch(all, []<unsigned kMost>(
                         const KernelCalls<SelectTopkArgs, kMost>& of_kernel,
                         std::span<const SelectTopkArgs> calls) {
    const size_t tokens = Most(calls, &SelectTopkArgs::tokens);
    if (tokens == 0) return;
    const dim3 grid(static_cast<unsigned>(tokens),
                    static_cast<unsigned>(calls.size()));
    LaunchOverlapped(SelectKernel<kMost>, grid, kThreads, 0, "select_topk",
                     of_kernel);
  });
}

void CandidateBlocks(const Calls<CandidateBlocksArgs>& all, ThreadPool&) {
  const size_t blocks = MostEntries(all);
  if (TakesCluster(blocks)) return ClusterCandidateBlocks(all);
  ForEachLaunch(
      all, [&]<unsigned kMost>(
               const KernelCalls<CandidateBlocksArgs, kMost>& of_kernel,
               std::span<const CandidateBlocksArgs> calls) {
        const size_t tokens = Most(calls, &CandidateBlocksArgs::tokens);
        if (tokens == 0 || blocks == 0) return;
        struct Best;
        uint32_t* const best =
            Scratch<Best, uint32_t>(calls.size() * tokens * blocks);
        if (best == nullptr) return;
        const dim3 grid(static_cast<unsigned>(tokens),
                        static_cast<unsigned>(calls.size()));
        LaunchOverlapped(CandidateKernel<kMost>, grid, kThreads, 0,
                         "candidate_blocks", of_kernel, best, blocks);
      });
}

}  // namespace ecphory::cuda
