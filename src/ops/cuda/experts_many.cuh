// The products of experts for many slots by tiles on tensor cores
// (ops/cuda/tile_products.cuh): 64 slots of an expert at a time.
#pragma once

#include "ops/cuda/experts_tiles.cuh"
#include "ops/cuda/tile_products.cuh"
#include "ops/cuda/wide_weights.cuh"

namespace ecphory::cuda {

inline constexpr int kTileSlots = 64;
template <bool kHidden>
inline constexpr size_t kTileExpertRows = kHidden ? 64 : 128;
inline constexpr size_t kTileExpertsMemory =
    std::max({TileShape<WeightFormat::kFp8Tile32, kTileSlots>::kMemory,
              TileShape<WeightFormat::kFp4Row32, kTileSlots>::kMemory,
              TileShape<WeightFormat::kMXFP4, kTileSlots>::kMemory,
              TileShape<WeightFormat::kQ8_0, kTileSlots>::kMemory});

// Block (rows, expert, every gridDim.z-th 64 slots).
template <WeightFormat kFormat, bool kHidden>
__device__ void TileExpert(const ExpertsTiles& step, const Expert& e,
                           uint8_t* memory, uint32_t* columns) {
  using F = Fragment<kFormat>;
  using Shape = TileShape<kFormat, kTileSlots>;
  const ExpertsArgs& a = step.args;
  const size_t rows = kHidden ? a.inner : a.dim;
  const int cols = static_cast<int>(kHidden ? a.dim : a.inner);
  const int chunks = (cols + kTileDepthCols - 1) / kTileDepthCols;
  const size_t row0 = blockIdx.x * kTileExpertRows<kHidden>;
  const TileWeights weights{kHidden ? &e.w1 : &e.w2, kHidden ? &e.w3 : &e.w2,
                            row0, kHidden ? row0 : row0 + 64, rows};
  const int32_t* const slots =
      step.groups.slots + step.groups.begin[blockIdx.y];
  const int count =
      step.groups.begin[blockIdx.y + 1] - step.groups.begin[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  for (int first = static_cast<int>(blockIdx.z) * kTileSlots; first < count;
       first += static_cast<int>(gridDim.z) * kTileSlots) {
    float sums[2][Shape::kColumnTiles][4] = {};
    for (int piece = 0; piece < step.in.pieces; ++piece) {
      __syncthreads();
      if (threadIdx.x < kTileSlots) {
        const size_t slot = static_cast<size_t>(
            slots[min(first + static_cast<int>(threadIdx.x), count - 1)]);
        const size_t row = kHidden ? slot / a.topk : slot;
        columns[threadIdx.x] =
            static_cast<uint32_t>(row * step.in.pieces + piece);
      }
      TileProducts<kFormat, kTileSlots, kHidden>(weights, step.in.parts,
                                                 step.in.pitch, columns, cols,
                                                 0, chunks, memory, sums);
    }
#pragma unroll
    for (int j = 0; j < Shape::kColumnTiles; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int i =
            first + warp % 2 * (kTileSlots / 2) + 8 * j + lane % 4 * 2 + k;
        if (i >= count) continue;
        const size_t slot = static_cast<size_t>(slots[i]);
        const float scale =
            F::kPower * step.in.scales[kHidden ? slot / a.topk : slot];
        float* const out = step.out + slot * rows;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float one = sums[0][j][2 * h + k] * scale;
          const float two = sums[1][j][2 * h + k] * scale;
          const size_t row =
              row0 + WarpRow<kHidden>(warp / 2, 0) + lane / 4 + 8 * h;
          if constexpr (kHidden) {
            if (row < rows) out[row] = Swiglu(a, one, two, a.weights[slot]);
          } else {
            if (row < rows) out[row] = MaybeRound(one, a.round_bf16);
            if (row + 16 < rows) out[row + 16] = MaybeRound(two, a.round_bf16);
          }
        }
      }
    }
  }
}

template <bool kHidden>
__global__ void __launch_bounds__(kTileThreadCount, 2)
    TileExpertsKernel(const __grid_constant__ ExpertsTiles step) {
  extern __shared__ uint4 tile_memory[];
  __shared__ uint32_t columns[kTileSlots];
  LetNextStart();
  WaitForEarlier();
  const Groups& groups = step.groups;
  if (groups.begin[blockIdx.y + 1] - groups.begin[blockIdx.y] <=
      static_cast<int>(blockIdx.z) * kTileSlots) {
    return;
  }
  const Expert& e = step.args.experts[blockIdx.y];
  if (groups.wide && IsWideFormat(kHidden ? e.w1.format : e.w2.format)) return;
  if (!TilesTake<kHidden>(step.args, e)) return;
  uint8_t* const memory = reinterpret_cast<uint8_t*>(tile_memory);
  switch (kHidden ? e.w1.format : e.w2.format) {
    case WeightFormat::kFp8Tile32:
      return TileExpert<WeightFormat::kFp8Tile32, kHidden>(step, e, memory,
                                                           columns);
    case WeightFormat::kFp4Row32:
      return TileExpert<WeightFormat::kFp4Row32, kHidden>(step, e, memory,
                                                          columns);
    case WeightFormat::kMXFP4:
      return TileExpert<WeightFormat::kMXFP4, kHidden>(step, e, memory,
                                                       columns);
    case WeightFormat::kQ8_0:
      return TileExpert<WeightFormat::kQ8_0, kHidden>(step, e, memory, columns);
    default: return;
  }
}

// The inputs' parts, as the format of the first expert has them.
template <bool kHidden>
__global__ void __launch_bounds__(kSplitThreads)
    SplitInputsKernel(const __grid_constant__ ExpertsTiles step,
                      const float* in) {
  LetNextStart();
  WaitForEarlier();
  const Expert& e = step.args.experts[0];
  const size_t cols = kHidden ? step.args.dim : step.args.inner;
  const float* const row = in + blockIdx.x * cols;
  const int n = static_cast<int>(cols);
  if (cols % 32 != 0 || reinterpret_cast<uintptr_t>(in) % 16 != 0) return;
  const WeightFormat format = kHidden ? e.w1.format : e.w2.format;
  switch (format) {
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kQ8_0:
      return SplitRow<WeightFormat::kQ8_0>(row, n, blockIdx.x, step.in);
    case WeightFormat::kFp4Row32:
      return SplitRow<WeightFormat::kFp4Row32>(row, n, blockIdx.x, step.in);
    case WeightFormat::kMXFP4:
      return SplitRow<WeightFormat::kMXFP4>(row, n, blockIdx.x, step.in);
    default: return;
  }
}

// Room for the parts of both steps' inputs. False when there is none.
inline bool PlanTiles(ExpertsTiles& step, size_t rows, size_t cols,
                      int pieces) {
  struct Parts;
  struct Scales;
  step.in.pieces = pieces;
  step.in.pitch = SplitPitch(cols);
  step.in.parts =
      Scratch<Parts, uint16_t>(rows * step.in.pieces * step.in.pitch);
  step.in.scales = Scratch<Scales>(rows);
  return step.in.parts != nullptr && step.in.scales != nullptr;
}

// One step for slots in groups. Experts that tiles do not take are left.
template <bool kHidden>
void LaunchTiles(ExpertsTiles step, const float* in) {
  const ExpertsArgs& a = step.args;
  const size_t slots = a.tokens * a.topk;
  const size_t rows = kHidden ? a.inner : a.dim;
  if (!PlanTiles(step, kHidden ? a.tokens : slots, kHidden ? a.dim : a.inner,
                 a.input == MatmulInput::kBF16 ? 1 : 2)) {
    return;  // noted
  }
  LaunchOverlapped(SplitInputsKernel<kHidden>,
                   dim3(static_cast<unsigned>(kHidden ? a.tokens : slots)),
                   kSplitThreads, 0, "experts: split", step, in);
  Note(cudaFuncSetAttribute(TileExpertsKernel<kHidden>,
                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(kTileExpertsMemory)),
       "experts");
  // Twice the mean of an expert's slots at a time, the rest in turn.
  const size_t at_a_time = std::min<size_t>(
      2 * Blocks(slots, a.n_experts * kTileSlots), Blocks(slots, kTileSlots));
  LaunchOverlapped(TileExpertsKernel<kHidden>,
                   dim3(Blocks(rows, kTileExpertRows<kHidden>),
                        static_cast<unsigned>(a.n_experts),
                        static_cast<unsigned>(at_a_time)),
                   kTileThreadCount, kTileExpertsMemory, "experts", step);
}

}  // namespace ecphory::cuda
