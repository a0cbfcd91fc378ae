// The slots (token, choice) of a call ordered by expert, in the order of their
// numbers within one: a counting sort, the same every time.
#pragma once

#include "ops/cuda/experts_slots.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

inline constexpr int kGroupThreads = 1024;
inline constexpr int kGroupWarps = kGroupThreads / 32;

// Shared memory: counts[expert][warp], which become where the warp's next slot
// of that expert goes.
inline size_t GroupMemory(size_t experts) {
  return experts * kGroupWarps * sizeof(int32_t);
}

// Each lane's count of equal values in lower lanes, and whether it is the last
// of them.
struct Peers {
  __device__ Peers(int value, bool valid) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned same = __match_any_sync(0xffffffffu, valid ? value : -1);
    before = __popc(same & ((1u << lane) - 1));
    last = valid && same >> lane == 1;
  }
  int before;
  bool last;
};

// By one warp.
__device__ inline void CountTiles(const Groups& groups, int experts) {
  const int most = groups.tile_slots;
  const int lane = static_cast<int>(threadIdx.x % 32);
  int32_t before = 0;
  for (int e0 = 0; e0 <= experts; e0 += 32) {
    const int e = e0 + lane;
    const int32_t tiles =
        e < experts ? (groups.begin[e + 1] - groups.begin[e] + most - 1) / most
                    : 0;
    int32_t sum = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t more = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += more;
    }
    if (e <= experts) groups.tiles_begin[e] = before + sum - tiles;
    before += __shfl_sync(0xffffffffu, sum, 31);
  }
}

// One block. Every warp counts, and then places, a run of neighbouring slots.
inline __global__ void __launch_bounds__(kGroupThreads)
    GroupKernel(const __grid_constant__ ExpertsArgs a, Groups groups) {
  extern __shared__ int32_t counts[];
  __shared__ int32_t totals[kGroupThreads];
  LetNextStart();
  WaitForEarlier();
  const int32_t* const ids = a.ids;
  const int slots = static_cast<int>(a.tokens * a.topk);
  const int experts = static_cast<int>(a.n_experts);
  bool refused[2] = {};
  for (int e = threadIdx.x; e < experts; e += kGroupThreads) {
    refused[0] |= !groups.tiles || !TilesTake<true>(a, a.experts[e]);
    refused[1] |= !groups.tiles || !TilesTake<false>(a, a.experts[e]);
    groups.inexact[2 * e] = groups.inexact[2 * e + 1] = 0;
  }
  const int first_step = __syncthreads_or(refused[0]);
  const int last_step = __syncthreads_or(refused[1]);
  if (threadIdx.x == 0) {
    groups.refused[0] = first_step, groups.refused[1] = last_step;
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < experts * kGroupWarps; i += kGroupThreads) {
    counts[i] = 0;
  }
  __syncthreads();
  const int share = (slots + kGroupThreads - 1) / kGroupThreads * 32;
  const int first = warp * share, end = min(slots, first + share);
  for (int s0 = first; s0 < end; s0 += 32) {
    const int expert = s0 + lane < end ? ids[s0 + lane] : -1;
    const bool valid = static_cast<unsigned>(expert) < unsigned(experts);
    const Peers peers(expert, valid);
    if (peers.last) counts[expert * kGroupWarps + warp] += peers.before + 1;
    __syncwarp();
  }
  __syncthreads();
  // Sums of a run of counts a thread, then of the threads before it.
  const int run = (experts * kGroupWarps + kGroupThreads - 1) / kGroupThreads;
  const int from = min(threadIdx.x * run, experts * kGroupWarps);
  const int to = min(from + run, experts * kGroupWarps);
  int32_t sum = 0;
  for (int i = from; i < to; ++i) sum += counts[i];
  totals[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 1; step < kGroupThreads; step *= 2) {
    const int32_t more =
        static_cast<int>(threadIdx.x) >= step ? totals[threadIdx.x - step] : 0;
    __syncthreads();
    totals[threadIdx.x] += more;
    __syncthreads();
  }
  int32_t at = totals[threadIdx.x] - sum;
  for (int i = from; i < to; ++i) {
    const int32_t count = counts[i];
    counts[i] = at;
    if (i % kGroupWarps == 0) groups.begin[i / kGroupWarps] = at;
    at += count;
  }
  if (threadIdx.x == kGroupThreads - 1) groups.begin[experts] = at;
  __syncthreads();
  if (warp == kGroupWarps - 1) CountTiles(groups, experts);
  for (int s0 = first; s0 < end; s0 += 32) {
    const int expert = s0 + lane < end ? ids[s0 + lane] : -1;
    const bool valid = static_cast<unsigned>(expert) < unsigned(experts);
    const Peers peers(expert, valid);
    int32_t* const next = counts + (valid ? expert : 0) * kGroupWarps + warp;
    const int32_t base = *next;
    __syncwarp();
    const int32_t place = base + peers.before;
    if (valid) groups.slots[place] = s0 + lane;
    if (s0 + lane < end) groups.places[s0 + lane] = valid ? place : -1;
    if (peers.last) *next = place + 1;
    __syncwarp();
  }
}

// A call of few slots is grouped by each block for itself: block row `slot`
// does the work of the slot's expert if no earlier slot has it; slot 0 stands
// for any where each expert has a block row. All threads call it; the expert's
// slots go to `list` in order. Returns how many, 0 if the block has nothing to
// do.
__device__ inline int SlotsLike(const int32_t* ids, int slots, int expert,
                                int slot, int32_t* list) {
  __shared__ int32_t counts[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warps = blockDim.x / 32;
  if (slots <= 32) {  // every warp knows
    const unsigned lanes =
        __ballot_sync(0xffffffffu, lane < slots && ids[lane] == expert);
    if (warp == 0 && (lanes >> lane & 1) != 0) {
      list[__popc(lanes & ((1u << lane) - 1))] = lane;
    }
    __syncthreads();
    return (lanes & ((1u << slot) - 1)) != 0 ? 0 : __popc(lanes);
  }
  int count = 0;
  bool earlier = false;
  for (int s0 = 0; s0 < slots; s0 += blockDim.x) {
    const int s = s0 + threadIdx.x;
    const bool same = s < slots && ids[s] == expert;
    const unsigned lanes = __ballot_sync(0xffffffffu, same);
    earlier = earlier || (same && s < slot);
    if (lane == 0) counts[warp] = __popc(lanes);
    __syncthreads();
    int at = count;
    for (int w = 0; w < warps; ++w) {
      at += w < warp ? counts[w] : 0;
      count += counts[w];
    }
    if (same) list[at + __popc(lanes & ((1u << lane) - 1))] = s;
    __syncthreads();
  }
  return __syncthreads_or(earlier) != 0 ? 0 : count;
}

}  // namespace ecphory::cuda
