// y = x W^T for more tokens than matmul_few.cuh takes, in fp32: tiles of W and
// x in shared memory, an 8 x 8 block of products a thread. Up to
// kSharedDepthTokens the columns of W are shared among blocks, whose sums a
// second kernel adds up in order; beyond, the order is k ascending.
#pragma once

#include <algorithm>

#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

struct TileArgs {
  Matrix weight;
  const float* x;
  float* y;
  size_t tokens;
  size_t x_stride;
  size_t y_stride;
  bool round_bf16 = false;  // y
  bool bf16 = false;        // x holds bf16 values
};

inline constexpr size_t kSharedDepthTokens = 64;

// y[token] = the shares' sums [shares, tokens, rows], in order, times `power`
// and the token's scale, where tokens have one.
inline __global__ void AddSharesKernel(const float* sums, const float* scales,
                                       float power, int shares, size_t rows,
                                       size_t tokens, float* y, size_t y_stride,
                                       bool round_bf16) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= rows * tokens) return;
  float sum = 0;
#pragma unroll 4
  for (int s = 0; s < shares; ++s) sum += sums[s * rows * tokens + i];
  const size_t token = i / rows;
  const float scale = scales != nullptr ? power * scales[token] : power;
  y[token * y_stride + i % rows] = MaybeRound(sum * scale, round_bf16);
}

inline constexpr size_t kTileRows = 128;
inline constexpr size_t kTileTokens = 64;
inline constexpr size_t kTileDepth = 32;
inline constexpr unsigned kTileThreads = 128;

// wide[k][row] and tall[k][token]; a column more keeps the stores of a warp in
// different banks.
struct TileMemory {
  float w[kTileDepth][kTileRows + 4];
  float x[kTileDepth][kTileTokens + 4];
};

template <WeightFormat kFormat, size_t kAlign>
__device__ inline void LoadWeights(const Matrix& m, size_t row0, size_t k0,
                                   TileMemory& shared) {
  using Row = Weight<kFormat, kAlign>;
  constexpr size_t kRun = Row::kRun, kRuns = kTileDepth / kRun;
  for (size_t i = threadIdx.x; i < kTileRows * kRuns; i += kTileThreads) {
    const size_t row = i % kTileRows, run = i / kTileRows;
    float w[kRun] = {};
    float scale = 0;
    if (row0 + row < m.rows && k0 + run * kRun < m.cols) {
      scale = Row::Decode(Row(m, row0 + row).Load(k0 / kRun + run), w);
    }
#pragma unroll
    for (size_t j = 0; j < kRun; ++j)
      shared.w[run * kRun + j][row] = w[j] * scale;
  }
}

__device__ inline void LoadTokens(const TileArgs& a, size_t token0, size_t k0,
                                  TileMemory& shared) {
  for (size_t i = threadIdx.x; i < kTileTokens * kTileDepth;
       i += kTileThreads) {
    const size_t k = i % kTileDepth, token = i / kTileDepth;
    const bool valid = token0 + token < a.tokens && k0 + k < a.weight.cols;
    shared.x[k][token] =
        valid ? a.x[(token0 + token) * a.x_stride + k0 + k] : 0.0f;
  }
}

// Block z takes share z of the columns. With more than one share a.y is
// [shares, tokens, rows].
template <WeightFormat kFormat, size_t kAlign>
__global__ void __launch_bounds__(kTileThreads)
    TileKernel(TileArgs a, const int* only_if) {
  __shared__ TileMemory shared;
  LetNextStart();
  WaitForEarlier();
  if (only_if != nullptr && *only_if == 0) return;
  const size_t row0 = blockIdx.x * kTileRows, token0 = blockIdx.y * kTileTokens;
  const size_t my_row = threadIdx.x % 16 * 8, my_token = threadIdx.x / 16 * 8;
  const size_t share = blockIdx.z, shares = gridDim.z;
  const size_t chunks = (a.weight.cols + kTileDepth - 1) / kTileDepth;
  const size_t end = chunks * (share + 1) / shares;
  float sums[8][8] = {};
  for (size_t chunk = chunks * share / shares; chunk < end; ++chunk) {
    LoadWeights<kFormat, kAlign>(a.weight, row0, chunk * kTileDepth, shared);
    LoadTokens(a, token0, chunk * kTileDepth, shared);
    __syncthreads();
#pragma unroll 4
    for (size_t k = 0; k < kTileDepth; ++k) {
      float w[8], x[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) w[i] = shared.w[k][my_row + i];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = shared.x[k][my_token + i];
#pragma unroll
      for (int t = 0; t < 8; ++t) {
#pragma unroll
        for (int r = 0; r < 8; ++r) sums[t][r] = fmaf(w[r], x[t], sums[t][r]);
      }
    }
    __syncthreads();
  }
  float* const y = a.y + share * a.tokens * a.y_stride;
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const size_t token = token0 + my_token + t, row = row0 + my_row + r;
      if (token < a.tokens && row < a.weight.rows) {
        y[token * a.y_stride + row] = MaybeRound(sums[t][r], a.round_bf16);
      }
    }
  }
}

// Shares of the columns of `rows` rows: a block on every multiprocessor, by the
// shape alone, with four steps or more each.
inline unsigned TileShares(size_t rows, size_t cols) {
  const size_t wanted = Multiprocessors() / Blocks(rows, kTileRows);
  return static_cast<unsigned>(
      std::max<size_t>(1, std::min(wanted, cols / (4 * kTileDepth))));
}

// Where `only_if` is given, nothing is done unless it is set on the device.
template <WeightFormat kFormat, size_t kAlign>
void RunTiles(const TileArgs& args, const int* only_if = nullptr) {
  struct Sums;
  const size_t rows = args.weight.rows;
  const unsigned shares =
      only_if == nullptr && args.tokens <= kSharedDepthTokens
          ? TileShares(rows, args.weight.cols)
          : 1;
  TileArgs tiles = args;
  if (shares > 1) {
    tiles.y = Scratch<Sums>(shares * args.tokens * rows);
    if (tiles.y == nullptr) return;  // noted
    tiles.y_stride = rows;
    tiles.round_bf16 = false;
  }
  const dim3 grid(Blocks(rows, kTileRows), Blocks(args.tokens, kTileTokens),
                  shares);
  LaunchOverlapped(TileKernel<kFormat, kAlign>, grid, kTileThreads, 0, "matmul",
                   tiles, only_if);
  if (shares == 1) return;
  LaunchOverlapped(AddSharesKernel, dim3(Blocks(rows * args.tokens, 256)), 256,
                   0, "matmul: add", tiles.y,
                   static_cast<const float*>(nullptr), 1.0f,
                   static_cast<int>(shares), rows, args.tokens, args.y,
                   args.y_stride, args.round_bf16);
}

}  // namespace ecphory::cuda
