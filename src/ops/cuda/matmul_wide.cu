#include "ops/cuda/matmul_wide.cuh"

#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/wide_products.cuh"

namespace ecphory::cuda {

namespace {

struct WideArgs {
  Matrix weight;
  SplitRows x;
  float* y;
  size_t y_stride;
  bool round_bf16;
  int tokens;
  // Set where scales of a row are too far apart: y is then not right.
  int* refused;
};

// Tiles in the order in which blocks take them: eight runs of tokens by all
// rows, so that what is read at a time stays in the L2.
struct WideOrder {
  __device__ WideOrder(int tile, int row_tiles, int token_tiles) {
    constexpr int kBand = 8;
    const int band = tile / (kBand * row_tiles) * kBand;
    const int width = min(kBand, token_tiles - band);
    const int i = tile - band * row_tiles;
    row = i / width, token = band + i % width;
  }
  int row, token;
};

template <WeightFormat kFormat, int kTokens>
__device__ void StoreWide(const WideArgs& a, int token0, size_t row0,
                          const float (&sums)[2][kTokens / 2],
                          const int (&power)[2][2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const bool whole =
      row0 + kWideRows <= a.weight.rows && token0 + kTokens <= a.tokens;
  row0 += static_cast<size_t>(warp / 4 * 128 + warp % 4 * 16 + lane / 4);
  const RowPower powers[2][2] = {
      {RowPower(power[0][0]), RowPower(power[0][1])},
      {RowPower(power[1][0]), RowPower(power[1][1])}};
  const OfTokens<float, kTokens> scales([&](int n) {
    return token0 + n < a.tokens ? __ldg(a.x.scales + token0 + n) : 0;
  });
  // Of a whole tile there is nothing to ask.
  const auto store = [&]<bool kWhole>() {
    int token = token0 + lane % 4 * 2;
    float* y = a.y + token * a.y_stride + row0;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j, token += 8, y += 8 * a.y_stride) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float scale = scales.At(j, k);
        if (!kWhole && token + k >= a.tokens) continue;
        float* const to = y + k * a.y_stride;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = i / 2 * 64 + i % 2 * 8;
          if (!kWhole && row0 + row >= a.weight.rows) continue;
          to[row] = MaybeRound(powers[i / 2][i % 2].Times(
                                   sums[i / 2][4 * j + i % 2 * 2 + k], scale),
                               a.round_bf16);
        }
      }
    }
  };
  whole ? store.template operator()<true>()
        : store.template operator()<false>();
}

template <WeightFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kWideThreads, 1)
    WideKernel(const __grid_constant__ WideArgs a,
               const __grid_constant__ WideBoxes boxes) {
#ifdef ECPHORY_WGMMA
  extern __shared__ uint4 wide_memory[];
  uint8_t* const memory = reinterpret_cast<uint8_t*>(wide_memory);
  if (threadIdx.x == 0) WideStages::Init(memory, 1);
  __syncthreads();
  LetNextStart();
  const int row_tiles =
      static_cast<int>((a.weight.rows + kWideRows - 1) / kWideRows);
  const int token_tiles = (a.tokens + kTokens - 1) / kTokens;
  const int tiles = row_tiles * token_tiles;
  WideStages stages(memory);
  if (threadIdx.x >= kWideMultiplyThreads) {
    GiveRegisters<kWideFetchRegisters>();
    if (threadIdx.x != kWideMultiplyThreads) return;  // one asks for boxes
    for (int i = static_cast<int>(blockIdx.x); i < tiles; i += gridDim.x) {
      const WideOrder at(i, row_tiles, token_tiles);
      FetchWideBoxes<kFormat, kTokens>(
          boxes, at.row * kWideRows, at.token * kTokens, a.x.pieces, stages,
          WholeRows<kFormat>(a.weight), i == static_cast<int>(blockIdx.x));
    }
  } else {
    TakeRegisters<kWideMultiplyRegisters>();
    for (int i = static_cast<int>(blockIdx.x); i < tiles; i += gridDim.x) {
      const WideOrder at(i, row_tiles, token_tiles);
      const WideTile<false> tile{&a.weight, &a.weight,
                                 size_t(at.row) * kWideRows, a.weight.rows};
      float sums[2][kTokens / 2];
      int power[2][2];
      const bool exact = MultiplyWide<kFormat, kTokens, false, true>(
          tile, a.x.pieces, stages, WholeRows<kFormat>(a.weight), sums, power);
      WaitForEarlier();
      if (!exact) *a.refused = 1;
      StoreWide<kFormat, kTokens>(a, at.token * kTokens, tile.row0, sums,
                                  power);
    }
  }
#endif
}

// Tokens of a tile: what takes the least time when all multiprocessors take as
// many tiles as the busiest.
inline int WideTokens(size_t rows, size_t tokens) {
  int best = 0;
  size_t least = SIZE_MAX;
  for (const int n : {128, 96, 64}) {
    const size_t tiles = Blocks(rows, kWideRows) * size_t{Blocks(tokens, n)};
    // Every step costs a little whatever its tokens.
    const size_t time = Blocks(tiles, Multiprocessors()) * (size_t(n) + 64);
    if (time < least) least = time, best = n;
  }
  return best;
}

template <WeightFormat kFormat, int kTokens>
void LaunchWide(const WideArgs& args) {
  constexpr auto kKernel = WideKernel<kFormat, kTokens>;
  AllowSharedMemory(kKernel, kWideMemory, "matmul");
  const size_t tiles = Blocks(args.weight.rows, kWideRows) *
                       size_t{Blocks(args.tokens, kTokens)};
  LaunchOverlapped(kKernel,
                   dim3(static_cast<unsigned>(std::min(
                       tiles, static_cast<size_t>(Multiprocessors())))),
                   kWideThreads, kWideMemory, "matmul", args,
                   MapWideBoxes<kFormat, kTokens>(
                       args.weight, args.x, static_cast<size_t>(args.tokens)));
}

template <WeightFormat kFormat>
const int* RunWide(const TileArgs& a, bool bf16) {
  using F = WideFragment<kFormat>;
  struct Parts;
  struct Scales;
  struct Refused;
  const int pieces = bf16 ? 1 : F::kPieces;
  const size_t pitch = SplitPitch(a.weight.cols);
  const WideArgs args{
      .weight = a.weight,
      .x = {.parts = Scratch<Parts, uint16_t>(a.tokens * pieces * pitch),
            .scales = Scratch<Scales>(a.tokens),
            .pieces = pieces,
            .pitch = pitch},
      .y = a.y,
      .y_stride = a.y_stride,
      .round_bf16 = a.round_bf16,
      .tokens = static_cast<int>(a.tokens),
      .refused = Scratch<Refused, int>(1)};
  if (args.x.parts == nullptr || args.x.scales == nullptr ||
      args.refused == nullptr) {
    return nullptr;  // noted
  }
  LaunchOverlapped(SplitRowsKernel<kFormat, F>,
                   dim3(static_cast<unsigned>(a.tokens)), kSplitThreads, 0,
                   "matmul: split", a.x, a.x_stride,
                   static_cast<int>(a.weight.cols), args.x, args.refused);
  switch (WideTokens(a.weight.rows, a.tokens)) {
    case 64: LaunchWide<kFormat, 64>(args); break;
    case 96: LaunchWide<kFormat, 96>(args); break;
    default: LaunchWide<kFormat, 128>(args); break;
  }
  return F::kFactor == FactorPlace::kBeside ? args.refused : nullptr;
}

template <WeightFormat kFormat>
bool TakesRows(const Matrix& weight) {
  using F = WideFragment<kFormat>;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(weight.data) |
                         weight.cols / 32 * F::kBlockBytes;
  return weight.cols % 32 == 0 && bits % 16 == 0;
}

bool TakesRows(const Matrix& weight) {
  switch (weight.format) {
    case WeightFormat::kF16: return TakesRows<WeightFormat::kF16>(weight);
    case WeightFormat::kBF16: return TakesRows<WeightFormat::kBF16>(weight);
    case WeightFormat::kFp8Tile32:
      return TakesRows<WeightFormat::kFp8Tile32>(weight);
    case WeightFormat::kFp4Row32:
      return TakesRows<WeightFormat::kFp4Row32>(weight);
    default: return false;
  }
}

}  // namespace

bool CanWide(const TileArgs& a) {
  return HasWgmmaCode() && TakesRows(a.weight) &&
         reinterpret_cast<uintptr_t>(a.x) % 16 == 0 && a.x_stride % 4 == 0 &&
         a.tokens < size_t{1} << 28 && a.weight.rows < size_t{1} << 31;
}

const int* RunWide(const TileArgs& a, bool bf16) {
  switch (a.weight.format) {
    case WeightFormat::kF16: return RunWide<WeightFormat::kF16>(a, bf16);
    case WeightFormat::kBF16: return RunWide<WeightFormat::kBF16>(a, bf16);
    case WeightFormat::kFp8Tile32:
      return RunWide<WeightFormat::kFp8Tile32>(a, bf16);
    default: return RunWide<WeightFormat::kFp4Row32>(a, bf16);
  }
}

}  // namespace ecphory::cuda
