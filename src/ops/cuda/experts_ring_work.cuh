// How blocks share the rows of experts, and the ring of stages in shared memory
// that their weights come through (ops/cuda/experts_ring.cu).
#pragma once

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/experts_slots.cuh"
#include "ops/cuda/wgmma.cuh"

namespace ecphory::cuda {

inline constexpr int kRingMultiplyWarps = 8;
// Blocks of 32 columns that a warp holds inputs of, as many as released experts
// have; of kMostRingTiles tiles of 8 operand columns these are 160 registers.
template <bool kHidden>
inline constexpr int kRingHeld = kHidden ? 20 : 18;
inline constexpr int kMostRingTiles = 2;
inline constexpr int kRingFetchWarp = kRingMultiplyWarps;
inline constexpr int kRingFinishWarp =
    kRingFetchWarp + 1;  // and as many more as tiles
inline constexpr int kRingWarps = kRingMultiplyWarps + 4;
inline constexpr int kRingThreads = kRingWarps * 32;
// Of a multiprocessor's 65536, with 168 at the start.
inline constexpr int kRingMultiplyRegisters = 224, kRingOtherRegisters = 56;

inline constexpr int kMostRingRowTiles = 2;  // of 16 rows, in a stage
inline constexpr int kMostRingStages = 8;
inline constexpr size_t kRingMemory = size_t{176} << 10;
// Behind a stage's scales zeros, and behind the ring what else a warp may read
// past its share.
inline constexpr int kRingStagePad = 32;
inline constexpr size_t kRingPad = 512;
// Sums of a stage by warp and tile, as a lane has them; of several stages, so
// that the next ones need not wait until these are added.
inline constexpr int kRingSumBuffers = 4;
inline constexpr int kRingSums =
    kRingMultiplyWarps * kMostRingTiles * 32;  // float4
inline constexpr size_t kRingSumMemory =
    kRingSumBuffers * kRingSums * sizeof(float4);

// Passes over rows of experts that a block may have a part in.
inline constexpr int kMostRingPasses = 64;
inline constexpr size_t kMostRingExperts = 1024;

// How rows of some columns are taken.
struct RingPlan {
  int blocks;     // of 32 columns
  int row_tiles;  // of 16 rows in a stage
  int share;      // blocks of a multiplying warp
  int pitch;      // bytes from row to row: an odd number of 16, so that 8 rows
                  // read different banks
  int stage_bytes;
  int stages;

  __host__ __device__ int Rows() const { return 16 * row_tiles; }
  __host__ __device__ int Shares() const {
    return kRingMultiplyWarps / row_tiles;
  }
  // In a stage, codes and behind them scales.
  __host__ __device__ int CodeBytes() const { return Rows() * pitch; }
  __host__ __device__ int ScaleBytes() const { return Rows() * blocks; }
};

template <bool kHidden>
RingPlan PlanRing(size_t cols) {
  RingPlan p{};
  p.blocks = static_cast<int>(cols / 32);
  p.row_tiles = kMostRingRowTiles;
  while (p.row_tiles > 1 && p.blocks > p.Shares() * kRingHeld<kHidden>) {
    p.row_tiles /= 2;
  }
  p.share = static_cast<int>(CeilDiv(p.blocks, p.Shares()));
  p.pitch = (p.blocks | 1) * 16;
  p.stage_bytes = p.CodeBytes() + p.ScaleBytes() + kRingStagePad;
  p.stages = std::min<int>(kMostRingStages,
                           static_cast<int>(kRingMemory) / p.stage_bytes);
  return p;
}

// Some slots of an expert, as many as there are operand columns for.
struct RingPass {
  int expert, first, count;  // of its slots in the order of their numbers
  int32_t slots[8 * kMostRingTiles];
};

// What a block multiplies, in shared memory: tiles of a stage's rows, numbered
// by pass and row.
struct RingWork {
  int first_tile, end_tile, tiles_of_pass, first_pass;
  RingPass passes[kMostRingPasses];  // from first_pass on
  int32_t ids[kFewSlots];
  int32_t counts[kMostRingExperts];  // of an expert's slots
  int32_t totals[kRingWarps];
};

// All threads of the block call it, and may read `work` when it returns.
__device__ inline void ShareOutPasses(const ExpertsArgs& a, int tiles_of_pass,
                                      int slots_of_pass, RingWork& work) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const int slots = static_cast<int>(a.tokens * a.topk);
  const int experts = static_cast<int>(a.n_experts);
  for (int e = thread; e < experts; e += kRingThreads) work.counts[e] = 0;
  __syncthreads();
  for (int s = thread; s < slots; s += kRingThreads) {
    const int32_t id = a.ids[s];
    work.ids[s] = id;
    if (static_cast<unsigned>(id) < a.n_experts) {
      atomicAdd(&work.counts[id], 1);
    }
  }
  __syncthreads();
  // The experts of a thread are neighbours.
  const int some = (experts + kRingThreads - 1) / kRingThreads;
  const int first_expert = min(thread * some, experts);
  const int end_expert = min(first_expert + some, experts);
  int passes = 0;
  for (int e = first_expert; e < end_expert; ++e) {
    passes += (work.counts[e] + slots_of_pass - 1) / slots_of_pass;
  }
  int through = passes;  // those of lower lanes too
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int more = __shfl_up_sync(0xffffffffu, through, step);
    if (lane >= step) through += more;
  }
  if (lane == 31) work.totals[warp] = through;
  __syncthreads();
  int before = through - passes, all = 0;
#pragma unroll
  for (int w = 0; w < kRingWarps; ++w) {
    const int total = work.totals[w];
    before += w < warp ? total : 0;
    all += total;
  }
  const int64_t tiles = int64_t{all} * tiles_of_pass;
  const int first_tile = static_cast<int>(tiles * blockIdx.x / gridDim.x);
  const int end_tile = static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x);
  const int first_pass = first_tile / tiles_of_pass;
  const int end_pass = (end_tile + tiles_of_pass - 1) / tiles_of_pass;
  if (thread == 0) {
    work.first_tile = first_tile, work.end_tile = end_tile;
    work.tiles_of_pass = tiles_of_pass, work.first_pass = first_pass;
  }
  int pass = before;
  for (int e = first_expert; e < end_expert; ++e) {
    const int count = work.counts[e];
    for (int first = 0; first < count; first += slots_of_pass, ++pass) {
      if (pass < first_pass || pass >= end_pass) continue;
      RingPass& p = work.passes[pass - first_pass];
      p.expert = e, p.first = first;
      p.count = min(slots_of_pass, count - first);
    }
  }
  __syncthreads();
  for (int i = warp; i < end_pass - first_pass; i += kRingWarps) {
    RingPass& p = work.passes[i];
    int at = -p.first;
    for (int s0 = 0; s0 < slots; s0 += 32) {
      const int s = s0 + lane;
      const bool same = s < slots && work.ids[s] == p.expert;
      const unsigned lanes = __ballot_sync(0xffffffffu, same);
      const int place = at + __popc(lanes & ((1u << lane) - 1));
      if (same && place >= 0 && place < p.count) p.slots[place] = s;
      at += __popc(lanes);
    }
  }
  __syncthreads();
}

// Tile after tile of a block, by each of its warps.
struct RingWalk {
  __device__ RingWalk(const RingWork& of, const RingPlan& plan)
      : work(of), rows(plan.Rows()), tile(of.first_tile) {}
  // False at the end.
  __device__ bool Next() {
    if (tile == work.end_tile) return false;
    const int now = tile / work.tiles_of_pass - work.first_pass;
    row0 = static_cast<size_t>(tile % work.tiles_of_pass) * rows;
    entered = now != pass;
    pass = now;
    ++tile;
    return true;
  }
  __device__ const RingPass& Pass() const { return work.passes[pass]; }

  const RingWork& work;
  int rows, tile, pass = -1;
  bool entered = false;  // whether the tile is the pass's first
  size_t row0 = 0;
};

// One of a ring of `count` places, which are used again and again.
struct RingPlace {
  __device__ void Next(int count) {
    if (++number == count) number = 0, parity ^= 1;
  }
  int number = 0;
  uint32_t parity = 0;
};

// Of stages and of sums, which are full or empty.
struct RingBarriers {
  __device__ void Init() {
    for (int i = 0; i < kMostRingStages; ++i) {
      InitBarrier(&stage_full[i], 1);
      InitBarrier(&stage_empty[i], kRingMultiplyWarps + kMostRingTiles);
    }
    for (int i = 0; i < kRingSumBuffers; ++i) {
      InitBarrier(&sums_full[i], kRingMultiplyWarps);
      InitBarrier(&sums_empty[i], kMostRingTiles);
    }
    FenceAsyncProxy();  // and to bulk copies
  }
  uint64_t stage_full[kMostRingStages], stage_empty[kMostRingStages];
  uint64_t sums_full[kRingSumBuffers], sums_empty[kRingSumBuffers];
};

// Waits for the phase in which the place becomes what it is not yet in the
// first round; `before`: in which it was so before.
__device__ inline void WaitForPlace(const uint64_t* barriers,
                                    const RingPlace& at, bool before = false) {
  WaitForPhase(barriers + at.number, at.parity ^ (before ? 1 : 0));
}
}  // namespace ecphory::cuda
