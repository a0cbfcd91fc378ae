// The products of experts for some slots each by tiles on tensor cores
// (ops/cuda/tile_products.cuh): the parts of an input lie side by side, so that
// weights are read once for all slots of a tile. Bound by reading them.
#pragma once

#include <algorithm>

#include "ops/cuda/experts_many.cuh"
#include "ops/cuda/shared_limit.cuh"

namespace ecphory::cuda {

// So many slots of an expert on average that few ones are faster, and so many
// that a tile of `kColumns` takes them.
inline constexpr size_t kFewOfExpert = 2, kSomeOfExpert = 12,
                        kTensOfExpert = 40;

template <int kColumns>
inline constexpr size_t kSomeMemory =
    std::max({TileShape<WeightFormat::kFp8Tile32, kColumns>::kMemory,
              TileShape<WeightFormat::kFp4Row32, kColumns>::kMemory,
              TileShape<WeightFormat::kMXFP4, kColumns>::kMemory,
              TileShape<WeightFormat::kQ8_0, kColumns>::kMemory});

// Slots of an expert in a tile.
template <WeightFormat kFormat, int kColumns>
inline constexpr int kSomeSlots = kColumns / Fragment<kFormat>::kColumns;

// Block (rows, expert, every gridDim.z-th tile of slots).
template <WeightFormat kFormat, bool kHidden, int kColumns>
__device__ void SomeSlots(const ExpertsTiles& step, const Expert& e,
                          uint8_t* memory, uint32_t* columns) {
  using F = Fragment<kFormat>;
  using Shape = TileShape<kFormat, kColumns>;
  constexpr int kSlots = kSomeSlots<kFormat, kColumns>;
  const ExpertsArgs& a = step.args;
  const size_t rows = kHidden ? a.inner : a.dim;
  const int cols = static_cast<int>(kHidden ? a.dim : a.inner);
  const int chunks = (cols + kTileDepthCols - 1) / kTileDepthCols;
  const size_t row0 = blockIdx.x * kTileExpertRows<kHidden>;
  const TileWeights weights{kHidden ? &e.w1 : &e.w2, kHidden ? &e.w3 : &e.w2,
                            row0, kHidden ? row0 : row0 + 64, rows};
  const int begin = step.groups.begin[blockIdx.y];
  const int count = step.groups.begin[blockIdx.y + 1] - begin;
  const int32_t* const slots = step.groups.slots + begin;
  const int t = static_cast<int>(threadIdx.x % 4);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const size_t first_row =
      row0 + WarpRow<kHidden>(warp / 2, 0) + threadIdx.x % 32 / 4;
  const auto input_of = [&](size_t slot) {
    return kHidden ? slot / a.topk : slot;
  };
  for (int first = static_cast<int>(blockIdx.z) * kSlots; first < count;
       first += static_cast<int>(gridDim.z) * kSlots) {
    __syncthreads();  // all have left the columns
    if (threadIdx.x < kColumns) {
      const int n = static_cast<int>(threadIdx.x);
      const int slot = slots[min(first + n / F::kColumns, count - 1)];
      columns[n] = static_cast<uint32_t>(input_of(static_cast<size_t>(slot)) *
                                             step.in.pieces +
                                         min(n % F::kColumns, F::kPieces - 1));
    }
    float sums[2][Shape::kColumnTiles][4] = {};
    TileProducts<kFormat, kColumns, kHidden>(weights, step.in.parts,
                                             step.in.pitch, columns, cols, 0,
                                             chunks, memory, sums);
#pragma unroll
    for (int j = 0; j < Shape::kColumnTiles; ++j) {
      const int column = warp % 2 * (kColumns / 2) + 8 * j + 2 * t;
      const int i = first + column / F::kColumns;
      const float2 one = AddParts<F::kColumns>(sums[0][j], t);
      const float2 two = AddParts<F::kColumns>(sums[1][j], t);
      if (i >= count || column % F::kColumns != 0) continue;
      const size_t slot = static_cast<size_t>(slots[i]);
      const float scale = F::kPower * step.in.scales[input_of(slot)];
      float* const out = step.out + slot * rows;
      const auto store = [&](size_t row, float value, float up) {
        if (row >= rows) return;
        out[row] = kHidden
                       ? Swiglu(a, value * scale, up * scale, a.weights[slot])
                       : MaybeRound(value * scale, a.round_bf16);
      };
      store(first_row, one.x, two.x);
      store(first_row + 8, one.y, two.y);
      if constexpr (!kHidden) {
        store(first_row + 16, two.x, 0);
        store(first_row + 24, two.y, 0);
      }
    }
  }
}

template <bool kHidden, int kColumns>
__global__ void __launch_bounds__(kTileThreadCount, 2)
    SomeSlotsKernel(const __grid_constant__ ExpertsTiles step) {
  extern __shared__ uint4 tile_memory[];
  __shared__ uint32_t columns[kColumns];
  LetNextStart();
  WaitForEarlier();
  const Groups& groups = step.groups;
  constexpr int kSlots = kSomeSlots<WeightFormat::kQ8_0, kColumns>;
  if (groups.begin[blockIdx.y + 1] - groups.begin[blockIdx.y] <=
      static_cast<int>(blockIdx.z) * kSlots) {
    return;
  }
  const Expert& e = step.args.experts[blockIdx.y];
  if (!TilesTake<kHidden>(step.args, e)) return;
  uint8_t* const memory = reinterpret_cast<uint8_t*>(tile_memory);
  switch (kHidden ? e.w1.format : e.w2.format) {
    case WeightFormat::kFp8Tile32:
      return SomeSlots<WeightFormat::kFp8Tile32, kHidden, kColumns>(
          step, e, memory, columns);
    case WeightFormat::kFp4Row32:
      return SomeSlots<WeightFormat::kFp4Row32, kHidden, kColumns>(
          step, e, memory, columns);
    case WeightFormat::kMXFP4:
      return SomeSlots<WeightFormat::kMXFP4, kHidden, kColumns>(step, e, memory,
                                                                columns);
    case WeightFormat::kQ8_0:
      return SomeSlots<WeightFormat::kQ8_0, kHidden, kColumns>(step, e, memory,
                                                               columns);
    default: return;
  }
}

// One step for slots in groups, as LaunchTiles does it for many.
template <bool kHidden, int kColumns>
void LaunchSomeTiles(ExpertsTiles step, const float* in) {
  constexpr int kSlots = kSomeSlots<WeightFormat::kQ8_0, kColumns>;
  const ExpertsArgs& a = step.args;
  const size_t slots = a.tokens * a.topk;
  const size_t rows = kHidden ? a.inner : a.dim;
  const size_t inputs = kHidden ? a.tokens : slots;
  // Both parts, whatever the inputs are rounded to.
  if (!PlanTiles(step, inputs, kHidden ? a.dim : a.inner, 2)) return;  // noted
  LaunchOverlapped(SplitInputsKernel<kHidden>,
                   dim3(static_cast<unsigned>(inputs)), kSplitThreads, 0,
                   "experts: split", step, in);
  AllowSharedMemory(SomeSlotsKernel<kHidden, kColumns>, kSomeMemory<kColumns>,
                    "experts");
  const size_t at_a_time = std::min<size_t>(
      2 * Blocks(slots, a.n_experts * kSlots), Blocks(slots, kSlots));
  LaunchOverlapped(SomeSlotsKernel<kHidden, kColumns>,
                   dim3(Blocks(rows, kTileExpertRows<kHidden>),
                        static_cast<unsigned>(a.n_experts),
                        static_cast<unsigned>(at_a_time)),
                   kTileThreadCount, kSomeMemory<kColumns>, "experts", step);
}

// The tiles by how many slots an expert has.
template <bool kHidden>
void LaunchGrouped(const ExpertsTiles& step, const float* in) {
  const size_t slots = step.args.tokens * step.args.topk;
  const size_t experts = step.args.n_experts;
  if (slots <= kSomeOfExpert * experts) {
    LaunchSomeTiles<kHidden, 16>(step, in);
  } else if (slots <= kTensOfExpert * experts) {
    LaunchSomeTiles<kHidden, 64>(step, in);
  } else {
    LaunchTiles<kHidden>(step, in);
  }
}

}  // namespace ecphory::cuda
