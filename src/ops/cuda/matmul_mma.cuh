// y = x W^T for more tokens than matmul_stream.cuh takes, on tensor cores. Up
// to kSharedDepthTokens the columns of W are shared among blocks, whose sums a
// second kernel adds up in order.
#pragma once

#include "ops/cuda/matmul_tile.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/tile_products.cuh"

namespace ecphory::cuda {

struct MmaArgs {
  Matrix weight;
  SplitRows x;
  float* y;
  size_t y_stride;
  int tokens;
  // With more than one share of the columns y is [shares, tokens, rows], not
  // yet multiplied by a token's scale.
  int shares;
  bool round_bf16;  // y, where it is the result
};

// Many tokens: 128 a block, the parts of x one after another.
template <WeightFormat kFormat>
__global__ void __launch_bounds__(kTileThreadCount, 2)
    ManyTokensKernel(const __grid_constant__ MmaArgs a) {
  using F = Fragment<kFormat>;
  constexpr int kColumns = 128;
  using Shape = TileShape<kFormat, kColumns>;
  extern __shared__ uint4 tile_memory[];
  __shared__ uint32_t columns[kColumns];
  LetNextStart();
  WaitForEarlier();
  const size_t row0 = blockIdx.x * size_t{kTileWeightRows};
  const int token0 = static_cast<int>(blockIdx.y) * kColumns;
  const int cols = static_cast<int>(a.weight.cols);
  const int chunks = (cols + kTileDepthCols - 1) / kTileDepthCols;
  const TileWeights weights{&a.weight, &a.weight, row0, row0 + 64,
                            a.weight.rows};
  float sums[2][Shape::kColumnTiles][4] = {};
  for (int piece = 0; piece < a.x.pieces; ++piece) {
    __syncthreads();
    for (int n = threadIdx.x; n < kColumns; n += kTileThreadCount) {
      const int token = min(token0 + n, a.tokens - 1);
      columns[n] = static_cast<uint32_t>(token * a.x.pieces + piece);
    }
    TileProducts<kFormat, kColumns, false>(
        weights, a.x.parts, a.x.pitch, columns, cols, 0, chunks,
        reinterpret_cast<uint8_t*>(tile_memory), sums);
  }
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int j = 0; j < Shape::kColumnTiles; ++j) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int token =
          token0 + warp % 2 * (kColumns / 2) + 8 * j + lane % 4 * 2 + k;
      if (token >= a.tokens) continue;
      const float scale = F::kPower * __ldg(a.x.scales + token);
      float* const y = a.y + token * a.y_stride;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const size_t row =
            row0 + WarpRow<false>(warp / 2, i / 2) + lane / 4 + i % 2 * 8;
        if (row < a.weight.rows) {
          y[row] =
              MaybeRound(sums[i / 2][j][i % 2 * 2 + k] * scale, a.round_bf16);
        }
      }
    }
  }
}

// A few tens of tokens: parts of x are columns, as in matmul_stream.cuh.
template <WeightFormat kFormat>
__global__ void __launch_bounds__(kTileThreadCount, 2)
    SomeTokensKernel(const __grid_constant__ MmaArgs a) {
  using F = Fragment<kFormat>;
  constexpr int kColumns = 64, kTokens = kColumns / F::kColumns;
  using Shape = TileShape<kFormat, kColumns>;
  extern __shared__ uint4 tile_memory[];
  __shared__ uint32_t columns[kColumns];
  LetNextStart();
  WaitForEarlier();
  const size_t row0 = blockIdx.x * size_t{kTileWeightRows};
  const int token0 = static_cast<int>(blockIdx.y) * kTokens;
  for (int n = threadIdx.x; n < kColumns; n += kTileThreadCount) {
    const int token = min(token0 + n / F::kColumns, a.tokens - 1);
    const int piece = min(n % F::kColumns, F::kPieces - 1);
    columns[n] = static_cast<uint32_t>(token * F::kPieces + piece);
  }
  const int cols = static_cast<int>(a.weight.cols);
  const int chunks = (cols + kTileDepthCols - 1) / kTileDepthCols;
  const int share = static_cast<int>(blockIdx.z);
  const TileWeights weights{&a.weight, &a.weight, row0, row0 + 64,
                            a.weight.rows};
  float sums[2][Shape::kColumnTiles][4] = {};
  TileProducts<kFormat, kColumns, false>(
      weights, a.x.parts, a.x.pitch, columns, cols, chunks * share / a.shares,
      chunks * (share + 1) / a.shares, reinterpret_cast<uint8_t*>(tile_memory),
      sums);
  const bool round = a.round_bf16 && a.shares == 1;
  const int lane = static_cast<int>(threadIdx.x % 32), t = lane % 4;
  const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int j = 0; j < Shape::kColumnTiles; ++j) {
    const int column = warp % 2 * (kColumns / 2) + 8 * j + 2 * t;
    const int token = token0 + column / F::kColumns;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 pair = AddParts<F::kColumns>(sums[i][j], t);
      if (token >= a.tokens || column % F::kColumns != 0) continue;
      const float scale =
          a.shares > 1 ? 1 : F::kPower * __ldg(a.x.scales + token);
      float* const y = a.shares > 1 ? a.y + (share * size_t(a.tokens) + token) *
                                                a.weight.rows
                                    : a.y + token * a.y_stride;
      const size_t row = row0 + WarpRow<false>(warp / 2, i) + lane / 4;
      if (row < a.weight.rows) y[row] = MaybeRound(pair.x * scale, round);
      if (row + 8 < a.weight.rows) {
        y[row + 8] = MaybeRound(pair.y * scale, round);
      }
    }
  }
}

// Blocks that share the columns of 128 rows: two on every multiprocessor, by
// the shape alone.
inline int DepthShares(size_t rows, size_t cols) {
  const size_t tiles = (rows + kTileWeightRows - 1) / kTileWeightRows;
  const size_t chunks = (cols + kTileDepthCols - 1) / kTileDepthCols;
  const size_t wanted = 2 * static_cast<size_t>(Multiprocessors()) / tiles;
  return static_cast<int>(std::max<size_t>(1, std::min(wanted, chunks / 2)));
}

template <WeightFormat kFormat>
bool CanMma(const TileArgs& a) {
  using F = Fragment<kFormat>;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(a.weight.data) |
                         a.weight.cols / 32 * F::kBlockBytes;
  return a.weight.cols % 32 == 0 && bits % F::kTileUnit == 0 &&
         reinterpret_cast<uintptr_t>(a.x) % 16 == 0 && a.x_stride % 4 == 0 &&
         a.tokens < size_t{1} << 28 &&
         FitsSharedMemory(TileShape<kFormat, 128>::kMemory + 1024) &&
         FitsSharedMemory(TileShape<kFormat, 64>::kMemory + 1024);
}

// CanMma() says that it can. `pieces`: parts of x that are not all 0.
template <WeightFormat kFormat>
void RunMma(const TileArgs& a, bool bf16) {
  using F = Fragment<kFormat>;
  struct Parts;
  struct Scales;
  struct Sums;
  const bool shared_depth = a.tokens <= kSharedDepthTokens;
  const int pieces = bf16 && !shared_depth ? 1 : F::kPieces;
  const size_t pitch = SplitPitch(a.weight.cols), rows = a.weight.rows;
  MmaArgs args{
      .weight = a.weight,
      .x = {.parts = Scratch<Parts, uint16_t>(a.tokens * pieces * pitch),
            .scales = Scratch<Scales>(a.tokens),
            .pieces = pieces,
            .pitch = pitch},
      .y = a.y,
      .y_stride = a.y_stride,
      .tokens = static_cast<int>(a.tokens),
      .shares = shared_depth ? DepthShares(rows, a.weight.cols) : 1,
      .round_bf16 = a.round_bf16};
  if (args.x.parts == nullptr || args.x.scales == nullptr) return;  // noted
  if (args.shares > 1) {
    args.y = Scratch<Sums>(args.shares * a.tokens * rows);
    if (args.y == nullptr) return;
  }
  LaunchOverlapped(
      SplitRowsKernel<kFormat>, dim3(static_cast<unsigned>(a.tokens)),
      kSplitThreads, 0, "matmul: split", a.x, a.x_stride,
      static_cast<int>(a.weight.cols), args.x, static_cast<int*>(nullptr));
  const unsigned tiles = Blocks(rows, kTileWeightRows);
  if (!shared_depth) {
    constexpr auto kKernel = ManyTokensKernel<kFormat>;
    constexpr size_t kMemory = TileShape<kFormat, 128>::kMemory;
    Note(cudaFuncSetAttribute(kKernel,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kMemory)),
         "matmul");
    LaunchOverlapped(kKernel, dim3(tiles, Blocks(a.tokens, 128)),
                     kTileThreadCount, kMemory, "matmul", args);
    return;
  }
  constexpr auto kKernel = SomeTokensKernel<kFormat>;
  constexpr size_t kMemory = TileShape<kFormat, 64>::kMemory;
  Note(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kMemory)),
      "matmul");
  LaunchOverlapped(kKernel,
                   dim3(tiles, Blocks(a.tokens, 64 / F::kColumns), args.shares),
                   kTileThreadCount, kMemory, "matmul", args);
  if (args.shares > 1) {
    LaunchOverlapped(AddSharesKernel, dim3(Blocks(rows * a.tokens, 256)), 256,
                     0, "matmul: add", args.y, args.x.scales, F::kPower,
                     args.shares, rows, a.tokens, a.y, a.y_stride,
                     a.round_bf16);
  }
}

}  // namespace ecphory::cuda
