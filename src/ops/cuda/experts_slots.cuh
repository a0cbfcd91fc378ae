// The slots (token, choice) of a call, grouped by expert, and which way takes
// an expert's.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/weight_fragment.cuh"
#include "ops/moe.h"

namespace ecphory::cuda {

// The slots of a call that blocks may group for themselves.
inline constexpr int kFewSlots = 512;

// Where the matrices lie, which is read as soon as the chosen experts are
// known, into the L2.
__device__ inline void FetchDescriptions(const ExpertsArgs& a) {
  constexpr size_t kLine = 128;
  const size_t block = blockIdx.y * size_t{gridDim.x} + blockIdx.x;
  const size_t at = (block * blockDim.x + threadIdx.x) * kLine;
  if (at < a.n_experts * sizeof(Expert)) {
    FetchLineToL2(reinterpret_cast<const uint8_t*>(a.experts) + at);
  }
}

// Slots of every expert: slots[begin[e] .. begin[e + 1]).
struct Groups {
  int32_t* begin;  // [n_experts + 1]
  int32_t* slots;  // [tokens * topk]
  // [tokens * topk] where in `slots` a slot is; -1: its expert does not exist.
  int32_t* places;
  // Whether there are experts that TilesTake() refuses, for either step.
  int32_t* refused;  // [2]: hidden vectors, outputs
  bool tiles;        // whether the device has the memory for tiles
  // Whether those of wide formats are multiplied by warpgroups (ops/cuda/
  // experts_wide.cuh), by tiles of up to tile_slots of which the experts before
  // e have tiles_begin[e]. inexact[2 * e + step]: which they cannot after all.
  bool wide;
  int tile_slots;
  int32_t* tiles_begin;  // [n_experts + 1]
  int32_t* inexact;      // [2 * n_experts]
};

template <WeightFormat kFormat>
__device__ inline bool TileRows(const Matrix& m) {
  using F = Fragment<kFormat>;
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(m.data) | m.cols / 32 * F::kBlockBytes;
  return m.format == kFormat && m.cols % 32 == 0 && bits % F::kTileUnit == 0;
}

// Whether ops/cuda/experts_many.cuh can multiply by an expert's w1 and w3
// (kHidden) or w2: matrices of the first expert's format whose rows can be
// copied.
template <bool kHidden>
__device__ inline bool TilesTake(const ExpertsArgs& a, const Expert& e) {
  const Matrix& first = kHidden ? e.w1 : e.w2;
  const Matrix& last = kHidden ? e.w3 : e.w2;
  const Expert& zero = a.experts[0];
  const WeightFormat format = (kHidden ? zero.w1 : zero.w2).format;
  if (reinterpret_cast<uintptr_t>(a.x) % 16 != 0) return false;
  switch (format) {
    case WeightFormat::kFp8Tile32:
      return TileRows<WeightFormat::kFp8Tile32>(first) &&
             TileRows<WeightFormat::kFp8Tile32>(last);
    case WeightFormat::kFp4Row32:
      return TileRows<WeightFormat::kFp4Row32>(first) &&
             TileRows<WeightFormat::kFp4Row32>(last);
    case WeightFormat::kMXFP4:
      return TileRows<WeightFormat::kMXFP4>(first) &&
             TileRows<WeightFormat::kMXFP4>(last);
    case WeightFormat::kQ8_0:
      return TileRows<WeightFormat::kQ8_0>(first) &&
             TileRows<WeightFormat::kQ8_0>(last);
    default: return false;
  }
}

// Whether the expert is left to ops/cuda/experts_few.cuh.
template <bool kHidden>
__device__ inline bool LeftByTiles(const ExpertsArgs& a, const Groups& groups,
                                   int e) {
  return !groups.tiles || !TilesTake<kHidden>(a, a.experts[e]) ||
         groups.inexact[2 * e + (kHidden ? 0 : 1)] != 0;
}

}  // namespace ecphory::cuda
