// Top-k of some thousand entries: a block a token, each of its threads with a
// run of neighbouring entries in registers. The k-th best code is found two
// bits at a time, by counting the entries at or above three thresholds: scores
// of one token are alike in their upper bits, where the bins of a histogram
// would be a queue. Of many tokens bound by issue: some 10 rounds of 6
// instructions an entry.
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/select.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
constexpr unsigned kMostOwn = 32;  // entries of a thread
// With fewer tokens a token's latency counts, and from some number of entries
// on histograms and clusters are faster.
constexpr size_t kFewestTokens = 64;
constexpr unsigned kOwnOfFew = 8;

struct Shared {
  // Entries at or above the three thresholds, of a warp; of even and of odd
  // rounds.
  uint32_t counts[2][3][kWarps];
  uint32_t before[kWarps];  // of a warp: entries above, and 2^16 times ties
};

// The largest code that `count` of the block's entries reach: the count'th
// largest; less, where the entries at or above it are the same ones. 0 where
// fewer entries than that have a code.
template <unsigned kOwn>
__device__ uint32_t FindCode(const uint32_t (&codes)[kOwn], unsigned count,
                             Shared& shared) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t code = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    uint32_t(&counts)[3][kWarps] = shared.counts[shift / 2 % 2];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t threshold = code | (i + 1) << shift;
      unsigned reached = 0;
#pragma unroll
      for (unsigned j = 0; j < kOwn; ++j) reached += codes[j] >= threshold;
      reached = __reduce_add_sync(0xffffffffu, reached);
      if (lane == 0) counts[i][warp] = reached;
    }
    // A round's counts are read before the one after the next writes its own.
    __syncthreads();
    unsigned reached[3];
#pragma unroll
    for (unsigned i = 0; i < 3; ++i) {
      reached[i] = 0;
#pragma unroll
      for (unsigned w = 0; w < kWarps; ++w) reached[i] += counts[i][w];
    }
    const unsigned bits =
        (reached[0] >= count) + (reached[1] >= count) + (reached[2] >= count);
    code |= bits << shift;
    const unsigned left = bits == 3   ? reached[2]
                          : bits == 2 ? reached[1]
                                      : reached[0];
    if (left == count) break;  // those are the ones
  }
  return code;
}

// blockIdx: tokens, calls.
template <unsigned kMost, unsigned kOwn>
__global__ void __launch_bounds__(kThreads) SelectKernel(
    const __grid_constant__ KernelCalls<SelectTopkArgs, kMost> calls) {
  constexpr unsigned kPitch = kOwn + 1;  // of a thread's entries: odd
  __shared__ uint32_t all[kThreads * kPitch];
  __shared__ Shared shared;
  LetNextStart();
  WaitForEarlier();
  const SelectTopkArgs& a = calls[blockIdx.y];
  const size_t t = blockIdx.x;
  if (t >= a.tokens) return;
  const unsigned groups = static_cast<unsigned>(a.groups);
  const unsigned topk = static_cast<unsigned>(a.topk);
  const float* const scores = a.scores + t * a.groups;
  const unsigned block = static_cast<unsigned>(a.block_size);
  const uint8_t* const mask =
      a.mask == nullptr ? nullptr
                        : a.mask + t * CeilDiv(a.groups, a.block_size);
#pragma unroll
  for (unsigned j = 0; j < kOwn; ++j) {
    const unsigned g = j * kThreads + threadIdx.x;
    uint32_t code = g < groups ? CodeOf(scores[g]) : 0;
    if (mask != nullptr && code != 0 && mask[g / block] == 0) code = 0;
    all[g / kOwn * kPitch + g % kOwn] = code;
  }
  __syncthreads();
  uint32_t codes[kOwn];
#pragma unroll
  for (unsigned j = 0; j < kOwn; ++j) {
    codes[j] = all[threadIdx.x * kPitch + j];
  }
  const uint32_t cut = groups <= topk ? 0 : FindCode(codes, topk, shared);
  // Entries above the cut and at it, of the thread and of those before it.
  uint32_t own = 0;
#pragma unroll
  for (unsigned j = 0; j < kOwn; ++j) {
    own += codes[j] > cut;
    own += codes[j] == cut && cut != 0 ? 1u << 16 : 0;
  }
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t before = own;
#pragma unroll
  for (unsigned offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, before, offset);
    if (lane >= offset) before += other;
  }
  if (lane == kWarp - 1) shared.before[warp] = before;
  __syncthreads();
  before -= own;
  uint32_t total = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < warp) before += shared.before[w];
    total += shared.before[w];
  }
  const unsigned above = total & 0xffff, ties = min(total >> 16, topk - above);
  unsigned rank = before & 0xffff, tie = before >> 16;
  int32_t* const selected = a.selected + t * a.topk;
  const unsigned first = threadIdx.x * kOwn;
#pragma unroll
  for (unsigned j = 0; j < kOwn; ++j) {
    const bool is_tie = codes[j] == cut && cut != 0;
    if (codes[j] > cut || (is_tie && tie < ties)) {
      selected[rank + min(tie, ties)] = static_cast<int32_t>(first + j);
    }
    rank += codes[j] > cut, tie += is_tie;
  }
  for (unsigned i = above + ties + threadIdx.x; i < topk; i += kThreads) {
    selected[i] = -1;
  }
}

template <unsigned kOwn>
void Launch(const Calls<SelectTopkArgs>& all) {
  ForEachLaunch(all, []<unsigned kMost>(
                         const KernelCalls<SelectTopkArgs, kMost>& of_kernel,
                         std::span<const SelectTopkArgs> calls) {
    const size_t tokens = Most(calls, &SelectTopkArgs::tokens);
    if (tokens == 0) return;
    const dim3 grid(static_cast<unsigned>(tokens),
                    static_cast<unsigned>(calls.size()));
    LaunchOverlapped(SelectKernel<kMost, kOwn>, grid, kThreads, 0,
                     "select_topk", of_kernel);
  });
}

}  // namespace

bool TakesHeld(const Calls<SelectTopkArgs>& all) {
  size_t tokens = 0;
  for (const SelectTopkArgs& args : all) tokens += args.tokens;
  const unsigned own = tokens >= kFewestTokens ? kMostOwn : kOwnOfFew;
  return MostEntries(all) <= kThreads * own;
}

void HeldSelectTopk(const Calls<SelectTopkArgs>& all) {
  const size_t entries = MostEntries(all);
  if (entries <= kThreads * 2) return Launch<2>(all);
  if (entries <= kThreads * 8) return Launch<8>(all);
  if (entries <= kThreads * 16) return Launch<16>(all);
  Launch<kMostOwn>(all);
}

}  // namespace ecphory::cuda
