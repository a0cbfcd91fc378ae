#include "ops/cuda/experts_wide.cuh"

#include <cmath>

#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/wide_products.cuh"

namespace ecphory::cuda {

namespace {

// One tile of the grouped slots: some of an expert's, and rows from row0 on.
template <bool kHidden>
struct WideSlots {
  static constexpr int kRows = kHidden ? kWideRows / 2 : kWideRows;
  __device__ static int RowTiles(const ExpertsArgs& a) {
    return static_cast<int>(((kHidden ? a.inner : a.dim) + kRows - 1) / kRows);
  }
  // `tiles_begin` is groups.tiles_begin in shared memory.
  __device__ WideSlots(const ExpertsTiles& step, const int32_t* tiles_begin,
                       int tile) {
    const ExpertsArgs& a = step.args;
    const int row_tiles = RowTiles(a), wanted = tile / row_tiles;
    row0 = static_cast<size_t>(tile % row_tiles) * kRows;
    int past = static_cast<int>(a.n_experts);
    while (past - expert > 1) {  // tiles_begin[expert] <= wanted < [past]
      const int middle = (expert + past) / 2;
      (tiles_begin[middle] <= wanted ? expert : past) = middle;
    }
    const int begin = __ldg(step.groups.begin + expert);
    const int all = __ldg(step.groups.begin + expert + 1) - begin;
    const int parts = tiles_begin[expert + 1] - tiles_begin[expert];
    const int part = wanted - tiles_begin[expert];
    const int first = all * part / parts;
    slots = step.groups.slots + begin + first;
    count = all * (part + 1) / parts - first;
  }
  __device__ WideTile<kHidden> Tile(const ExpertsArgs& a) const {
    const Expert& e = a.experts[expert];
    return {kHidden ? &e.w1 : &e.w2, kHidden ? &e.w3 : &e.w2, row0,
            kHidden ? a.inner : a.dim};
  }
  int expert = 0;
  size_t row0;
  const int32_t* slots;
  int count;
};

template <bool kHidden, int kTokens>
__device__ void StoreWideSlots(const ExpertsTiles& step,
                               const WideSlots<kHidden>& at,
                               const float (&sums)[2][kTokens / 2],
                               const int (&power)[2][2]) {
  const ExpertsArgs& a = step.args;
  const size_t rows = kHidden ? a.inner : a.dim;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const size_t row0 =
      at.row0 + static_cast<size_t>(warp / 4 * (WideSlots<kHidden>::kRows / 2) +
                                    warp % 4 * 16 + lane / 4);
  const RowPower powers[2][2] = {
      {RowPower(power[0][0]), RowPower(power[0][1])},
      {RowPower(power[1][0]), RowPower(power[1][1])}};
  const OfTokens<int32_t, kTokens> slots(
      [&](int i) { return i < at.count ? __ldg(at.slots + i) : -1; });
  const auto of_slots = [&](const auto& of) {
    return OfTokens<float, kTokens>([&](int i) {
      const int32_t slot = slots.values[i / 32];
      return slot < 0 ? 0 : of(static_cast<size_t>(slot));
    });
  };
  const auto scales = of_slots([&](size_t slot) {
    return step.in.scales[kHidden ? slot / a.topk : slot];
  });
  const auto weights =
      of_slots([&](size_t slot) { return kHidden ? a.weights[slot] : 0; });
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int32_t slot = slots.At(j, k);
      const float scale = scales.At(j, k), weight = weights.At(j, k);
      if (slot < 0) continue;
      float* const out = step.out + static_cast<size_t>(slot) * rows;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float one = powers[0][h].Times(sums[0][4 * j + 2 * h + k], scale);
        const float two = powers[1][h].Times(sums[1][4 * j + 2 * h + k], scale);
        const size_t row = row0 + 8 * h;
        if constexpr (kHidden) {
          if (row < rows) out[row] = Swiglu(a, one, two, weight);
        } else {
          if (row < rows) out[row] = MaybeRound(one, a.round_bf16);
          if (row + 64 < rows) out[row + 64] = MaybeRound(two, a.round_bf16);
        }
      }
    }
  }
}

template <WeightFormat kFormat, bool kHidden, int kTokens>
__device__ void MultiplySlots(const ExpertsTiles& step,
                              const WideSlots<kHidden>& at,
                              WideStages& stages) {
  float sums[2][kTokens / 2];
  int power[2][2];
  if (!MultiplyWide<kFormat, kTokens, kHidden>(
          at.Tile(step.args), step.in.pieces, stages,
          WholeRows<kFormat>(*at.Tile(step.args).low), sums, power)) {
    const int which = kHidden ? 0 : 1;
    step.groups.refused[which] = 1;
    step.groups.inexact[2 * at.expert + which] = 1;
  }
  StoreWideSlots<kHidden, kTokens>(step, at, sums, power);
}

// The tiles of a block: of its fetching warpgroup, or of the others.
template <WeightFormat kFormat, bool kHidden, int kTokens, bool kFetch>
__device__ void WideBlock(const ExpertsTiles& step, const int32_t* tiles_begin,
                          uint8_t* memory) {
  const ExpertsArgs& a = step.args;
  WideStages stages(memory);
  const int tiles = tiles_begin[a.n_experts] * WideSlots<kHidden>::RowTiles(a);
  for (int i = static_cast<int>(blockIdx.x); i < tiles; i += gridDim.x) {
    const WideSlots<kHidden> at(step, tiles_begin, i);
    if (!TilesTake<kHidden>(a, a.experts[at.expert])) continue;
    if constexpr (kFetch) {
      FetchWide<kFormat>(
          at.Tile(a), step.in, at.count,
          [&](int n) {
            const uint32_t slot = static_cast<uint32_t>(at.slots[n]);
            return kHidden ? slot / static_cast<uint32_t>(a.topk) : slot;
          },
          stages, WholeRows<kFormat>(*at.Tile(a).low));
    } else {
      MultiplySlots<kFormat, kHidden, kTokens>(step, at, stages);
    }
  }
}

// Blocks take tile after tile of the experts that TilesTake() accepts, where
// they are of kFormat.
template <WeightFormat kFormat, bool kHidden, int kTokens>
__global__ void __launch_bounds__(kWideThreads, 1)
    WideExpertsKernel(const __grid_constant__ ExpertsTiles step) {
#ifdef ECPHORY_WGMMA
  extern __shared__ uint4 wide_memory[];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(wide_memory);
  int32_t* const tiles_begin = reinterpret_cast<int32_t*>(memory + kWideMemory);
  if (threadIdx.x == 0) WideStages::Init(memory);
  LetNextStart();
  WaitForEarlier();
  const ExpertsArgs& a = step.args;
  if ((kHidden ? a.experts[0].w1 : a.experts[0].w2).format != kFormat) return;
  for (int e = static_cast<int>(threadIdx.x);
       e <= static_cast<int>(a.n_experts); e += kWideThreads) {
    tiles_begin[e] = step.groups.tiles_begin[e];
  }
  __syncthreads();
  if (threadIdx.x >= kWideMultiplyThreads) {
    GiveRegisters<kWideFetchRegisters>();
    WideBlock<kFormat, kHidden, kTokens, true>(step, tiles_begin, memory);
  } else {
    TakeRegisters<kWideMultiplyRegisters>();
    WideBlock<kFormat, kHidden, kTokens, false>(step, tiles_begin, memory);
  }
#endif
}

size_t Memory(size_t n_experts) {
  return kWideMemory + (n_experts + 1) * sizeof(int32_t);
}

template <WeightFormat kFormat, bool kHidden, int kTokens>
void Launch(const ExpertsTiles& step) {
  constexpr auto kKernel = WideExpertsKernel<kFormat, kHidden, kTokens>;
  const size_t memory = Memory(step.args.n_experts);
  AllowSharedMemory(kKernel, memory, "experts");
  LaunchOverlapped(kKernel, dim3(static_cast<unsigned>(Multiprocessors())),
                   kWideThreads, memory, "experts", step);
}

template <WeightFormat kFormat, bool kHidden>
void Launch(const ExpertsTiles& step) {
  switch (step.groups.tile_slots) {
    case 64: return Launch<kFormat, kHidden, 64>(step);
    case 80: return Launch<kFormat, kHidden, 80>(step);
    default: return Launch<kFormat, kHidden, 128>(step);
  }
}

}  // namespace

bool HasWideExperts(size_t n_experts) {
  return HasWgmmaCode() && FitsSharedMemory(Memory(n_experts));
}

int WideTileSlots(size_t slots, size_t n_experts) {
  // An expert's are spread about the mean.
  const double mean =
      static_cast<double>(slots) / static_cast<double>(n_experts);
  const double wanted = mean + std::sqrt(mean);
  int best = 0;
  double least = INFINITY;
  for (const int n : {128, 80, 64}) {
    const double time = std::ceil(wanted / n) * (n + 64);
    if (time < least) least = time, best = n;
  }
  return best;
}

template <bool kHidden>
void LaunchWideExperts(const ExpertsTiles& step, const Expert* one) {
  const auto may_be = [&](WeightFormat format) {
    return one == nullptr ||
           (kHidden ? one->w1.format : one->w2.format) == format;
  };
  if (may_be(WeightFormat::kFp8Tile32)) {
    Launch<WeightFormat::kFp8Tile32, kHidden>(step);
  }
  if (may_be(WeightFormat::kFp4Row32)) {
    Launch<WeightFormat::kFp4Row32, kHidden>(step);
  }
}
template void LaunchWideExperts<false>(const ExpertsTiles&, const Expert*);
template void LaunchWideExperts<true>(const ExpertsTiles&, const Expert*);

}  // namespace ecphory::cuda
