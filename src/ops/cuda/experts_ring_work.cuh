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
inline constexpr int kRingCheckWarp = kRingFetchWarp + 1;
inline constexpr int kRingFinishWarp = kRingCheckWarp + 1;
inline constexpr int kRingFinishWarps = 2;
inline constexpr int kRingWarps = kRingFinishWarp + kRingFinishWarps;
inline constexpr int kRingThreads = kRingWarps * 32;
// Of a multiprocessor's 65536, with 168 at the start.
inline constexpr int kRingMultiplyRegisters = 216, kRingOtherRegisters = 72;

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

// What a tile of rows takes with so many slots, in units of its own for each
// kernel, as measured at released shapes: a second tile of operand columns is
// multiplied with what has been decoded for the first.
template <bool kHidden, int kParts>
__device__ constexpr int RingCost(int slots) {
  constexpr int kOne = kHidden ? (kParts == 1 ? 5 : 8) : 14;
  return slots > 8 / kParts ? kOne + 2 : kOne;
}

// Fills ids and counts; all threads of the block call it.
__device__ inline void CountSlots(const ExpertsArgs& a, RingWork& work) {
  const int slots = static_cast<int>(a.tokens * a.topk);
  const int experts = static_cast<int>(a.n_experts);
  const int thread = static_cast<int>(threadIdx.x);
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
}

// Which slots the first `count` of work.passes are of; by all warps.
__device__ inline void ListSlots(int slots, int count, RingWork& work) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = static_cast<int>(threadIdx.x / 32); i < count; i += kRingWarps) {
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
}

// The sum of a thread's numbers and of those before it in the block, and of
// all; `of_warps` [kRingWarps] is shared memory.
__device__ inline int SumThrough(int own, int* of_warps, int* all) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  int through = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int more = __shfl_up_sync(0xffffffffu, through, step);
    if (lane >= step) through += more;
  }
  if (lane == 31) of_warps[warp] = through;
  __syncthreads();
  *all = 0;
#pragma unroll
  for (int w = 0; w < kRingWarps; ++w) {
    through += w < warp ? of_warps[w] : 0;
    *all += of_warps[w];
  }
  return through;
}

// Blocks get equal shares of what all tiles take. All threads of the block call
// it, and may read `work` when it returns.
template <bool kHidden, int kParts>
__device__ void ShareOutPasses(const ExpertsArgs& a, int tiles_of_pass,
                               RingWork& work) {
  constexpr int kSlots = 8 / kParts * kMostRingTiles;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) work.first_tile = work.end_tile = 0;
  CountSlots(a, work);
  // The experts of a thread are neighbours. body(expert, first slot, count).
  const int experts = static_cast<int>(a.n_experts);
  const int some = (experts + kRingThreads - 1) / kRingThreads;
  const int first_expert = min(thread * some, experts);
  const int end_expert = min(first_expert + some, experts);
  const auto for_each_pass = [&](const auto& body) {
    for (int e = first_expert; e < end_expert; ++e) {
      const int count = work.counts[e];
      for (int first = 0; first < count; first += kSlots) {
        body(e, first, min(kSlots, count - first));
      }
    }
  };
  // Passes, and above them what a tile of each takes.
  constexpr int kPassBits = 12;
  static_assert(kFewSlots < 1 << kPassBits);
  int own = 0, all = 0;
  for_each_pass([&](int, int, int count) {
    own += 1 + (RingCost<kHidden, kParts>(count) << kPassBits);
  });
  const int before = SumThrough(own, work.totals, &all) - own;
  const int64_t cost = int64_t{all >> kPassBits} * tiles_of_pass;
  const int64_t begin = cost * blockIdx.x / gridDim.x;
  const int64_t end = cost * (blockIdx.x + 1) / gridDim.x;
  const int first_own = before & ((1 << kPassBits) - 1);
  int pass = first_own;
  int64_t at = int64_t{before >> kPassBits} * tiles_of_pass;
  for_each_pass([&](int, int, int count) {
    const int of_tile = RingCost<kHidden, kParts>(count);
    const int64_t next = at + int64_t{of_tile} * tiles_of_pass;
    const auto tile_at = [&](int64_t place) {
      return pass * tiles_of_pass +
             static_cast<int>((place - at + of_tile - 1) / of_tile);
    };
    if (at <= begin && begin < next) work.first_tile = tile_at(begin);
    if (at < end && end <= next) work.end_tile = tile_at(end);
    at = next, ++pass;
  });
  __syncthreads();
  const int first_pass = work.first_tile / tiles_of_pass;
  const int end_pass = (work.end_tile + tiles_of_pass - 1) / tiles_of_pass;
  if (thread == 0) {
    work.tiles_of_pass = tiles_of_pass, work.first_pass = first_pass;
  }
  pass = first_own;
  for_each_pass([&](int e, int first, int count) {
    if (first_pass <= pass && pass < end_pass) {
      RingPass& p = work.passes[pass - first_pass];
      p.expert = e, p.first = first, p.count = count;
    }
    ++pass;
  });
  __syncthreads();
  ListSlots(static_cast<int>(a.tokens * a.topk), end_pass - first_pass, work);
  __syncthreads();
}

// Tile after tile of a block, by each of its warps.
struct RingWalk {
  __device__ RingWalk(const RingWork& of, const RingPlan& plan)
      : work(of),
        rows(plan.Rows()),
        tile(of.first_tile),
        in_pass(of.first_tile - of.first_pass * of.tiles_of_pass) {}
  // False at the end.
  __device__ bool Next() {
    if (tile == work.end_tile) return false;
    entered = tile == work.first_tile;
    if (in_pass == work.tiles_of_pass) in_pass = 0, ++pass, entered = true;
    row0 = static_cast<size_t>(in_pass) * rows;
    ++tile, ++in_pass;
    return true;
  }
  __device__ const RingPass& Pass() const { return work.passes[pass]; }

  const RingWork& work;
  int rows, tile, in_pass, pass = 0;
  bool entered = false;  // whether the tile is the first of its pass here
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

// Of stages and of sums, which are full or empty; and what is known of sums.
struct RingBarriers {
  __device__ void Init() {
    for (int i = 0; i < kMostRingStages; ++i) {
      InitBarrier(&stage_full[i], 1);
      InitBarrier(&stage_empty[i], kRingMultiplyWarps + 1);
    }
    for (int i = 0; i < kRingSumBuffers; ++i) {
      InitBarrier(&sums_full[i], kRingMultiplyWarps + 1);
      InitBarrier(&sums_empty[i], 1);
    }
    FenceAsyncProxy();  // and to bulk copies
  }
  uint64_t stage_full[kMostRingStages], stage_empty[kMostRingStages];
  uint64_t sums_full[kRingSumBuffers], sums_empty[kRingSumBuffers];
  bool ordinary[kRingSumBuffers];  // whether sums are right
};

// Waits for the phase in which the place becomes what it is not yet in the
// first round; `before`: in which it was so before.
__device__ inline void WaitForPlace(const uint64_t* barriers,
                                    const RingPlace& at, bool before = false) {
  WaitForPhase(barriers + at.number, at.parity ^ (before ? 1 : 0));
}
}  // namespace ecphory::cuda
