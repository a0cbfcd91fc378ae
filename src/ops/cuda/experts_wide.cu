#include "ops/cuda/experts_wide.cuh"

#include <cmath>

#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/wide_products.cuh"

namespace ecphory::cuda {

namespace {

// Parts of the rows of `in`, a block each, in the order of `groups.slots`: of a
// token as many times as it has slots. As the first expert's format has them.
template <bool kHidden>
__global__ void __launch_bounds__(kSplitThreads)
    SplitSlotsKernel(const __grid_constant__ ExpertsTiles step,
                     const float* in) {
  LetNextStart();
  WaitForEarlier();
  const ExpertsArgs& a = step.args;
  const size_t cols = kHidden ? a.dim : a.inner;
  if (cols % 32 != 0 || reinterpret_cast<uintptr_t>(in) % 16 != 0) return;
  const float* const row = in + blockIdx.x * cols;
  const int n = kHidden ? static_cast<int>(a.topk) : 1;
  const int32_t* const places =
      step.groups.places + blockIdx.x * static_cast<size_t>(n);
  const auto split = [&]<WeightFormat kFormat>() {
    SplitRow<kFormat, WideFragment<kFormat>>(
        row, static_cast<int>(cols), n,
        [&](int i) { return static_cast<int64_t>(places[i]); }, step.in);
  };
  switch ((kHidden ? a.experts[0].w1 : a.experts[0].w2).format) {
    case WeightFormat::kFp8Tile32:
      return split.template operator()<WeightFormat::kFp8Tile32>();
    case WeightFormat::kFp4Row32:
      return split.template operator()<WeightFormat::kFp4Row32>();
    default: return;
  }
}

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
    place = begin + first;
    slots = step.groups.slots + place;
    count = all * (part + 1) / parts - first;
  }
  __device__ WideTile<kHidden> Tile(const ExpertsArgs& a) const {
    const Expert& e = a.experts[expert];
    return {kHidden ? &e.w1 : &e.w2, kHidden ? &e.w3 : &e.w2, row0,
            kHidden ? a.inner : a.dim};
  }
  int expert = 0;
  size_t row0;
  int place;  // of the first one, among all slots
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
  const OfTokens<float, kTokens> scales(
      [&](int i) { return i < at.count ? step.in.scales[at.place + i] : 0; });
  const OfTokens<float, kTokens> weights([&](int i) {
    const int32_t slot = slots.values[i / 32];
    return kHidden && slot >= 0 ? a.weights[slot] : 0;
  });
  // Of a whole tile there is nothing to ask.
  const auto store = [&]<bool kWhole>() {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int32_t slot = slots.At(j, k);
        const float scale = scales.At(j, k), weight = weights.At(j, k);
        if (!kWhole && slot < 0) continue;
        float* const out = step.out + static_cast<size_t>(slot) * rows + row0;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float one =
              powers[0][h].Times(sums[0][4 * j + 2 * h + k], scale);
          const float two =
              powers[1][h].Times(sums[1][4 * j + 2 * h + k], scale);
          const auto put = [&](int row, float value) {
            if (kWhole || row0 + row < rows) out[row] = value;
          };
          if constexpr (kHidden) {
            put(8 * h, Swiglu(a, one, two, weight));
          } else {
            put(8 * h, MaybeRound(one, a.round_bf16));
            put(8 * h + 64, MaybeRound(two, a.round_bf16));
          }
        }
      }
    }
  };
  at.count == kTokens&& at.row0 + WideSlots<kHidden>::kRows <= rows
      ? store.template operator()<true>()
      : store.template operator()<false>();
}

template <WeightFormat kFormat, bool kHidden, int kTokens>
__device__ void MultiplySlots(const ExpertsTiles& step,
                              const WideSlots<kHidden>& at,
                              WideStages& stages) {
  float sums[2][kTokens / 2];
  int power[2][2];
  if (!MultiplyWide<kFormat, kTokens, kHidden, true>(
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
__device__ void WideBlock(const ExpertsTiles& step, const CUtensorMap& x,
                          const int32_t* tiles_begin, uint8_t* memory) {
  const ExpertsArgs& a = step.args;
  WideStages stages(memory);
  const int tiles = tiles_begin[a.n_experts] * WideSlots<kHidden>::RowTiles(a);
  for (int i = static_cast<int>(blockIdx.x); i < tiles; i += gridDim.x) {
    const WideSlots<kHidden> at(step, tiles_begin, i);
    if (!TilesTake<kHidden>(a, a.experts[at.expert])) continue;
    if constexpr (kFetch) {
      FetchWideRows<kFormat, kTokens>(at.Tile(a), x, at.place, step.in.pieces,
                                      stages,
                                      WholeRows<kFormat>(*at.Tile(a).low));
    } else {
      MultiplySlots<kFormat, kHidden, kTokens>(step, at, stages);
    }
  }
}

// Blocks take tile after tile of the experts that TilesTake() accepts, where
// they are of kFormat.
template <WeightFormat kFormat, bool kHidden, int kTokens>
__global__ void __launch_bounds__(kWideThreads, 1)
    WideExpertsKernel(const __grid_constant__ ExpertsTiles step,
                      const __grid_constant__ CUtensorMap x) {
#ifdef ECPHORY_WGMMA
  extern __shared__ uint4 wide_memory[];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(wide_memory);
  int32_t* const tiles_begin = reinterpret_cast<int32_t*>(memory + kWideMemory);
  if (threadIdx.x == 0) WideStages::Init(memory, kWideFetchThreads + 1);
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
    WideBlock<kFormat, kHidden, kTokens, true>(step, x, tiles_begin, memory);
  } else {
    TakeRegisters<kWideMultiplyRegisters>();
    WideBlock<kFormat, kHidden, kTokens, false>(step, x, tiles_begin, memory);
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
  LaunchOverlapped(
      kKernel, dim3(static_cast<unsigned>(Multiprocessors())), kWideThreads,
      memory, "experts", step,
      MapTokens<kTokens>(step.in, step.args.tokens * step.args.topk,
                         kHidden ? step.args.dim : step.args.inner));
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
void LaunchWideExperts(const ExpertsTiles& step, const float* in,
                       const Expert* one) {
  const size_t rows =
      kHidden ? step.args.tokens : step.args.tokens * step.args.topk;
  LaunchOverlapped(SplitSlotsKernel<kHidden>, dim3(static_cast<unsigned>(rows)),
                   kSplitThreads, 0, "experts: split", step, in);

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
template void LaunchWideExperts<false>(const ExpertsTiles&, const float*,
                                       const Expert*);
template void LaunchWideExperts<true>(const ExpertsTiles&, const float*,
                                      const Expert*);

}  // namespace ecphory::cuda
