// y = x W^T for many tokens in fp32: tiles of W and x in shared memory, an 8 x
// 8 block of products a thread. The order of summation is k ascending, whatever
// the number of tokens.
#pragma once

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
};

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

template <WeightFormat kFormat, size_t kAlign>
__global__ void __launch_bounds__(kTileThreads)
    TileKernel(TileArgs a, const int* only_if) {
  __shared__ TileMemory shared;
  LetNextStart();
  WaitForEarlier();
  if (only_if != nullptr && *only_if == 0) return;
  const size_t row0 = blockIdx.x * kTileRows, token0 = blockIdx.y * kTileTokens;
  const size_t my_row = threadIdx.x % 16 * 8, my_token = threadIdx.x / 16 * 8;
  float sums[8][8] = {};
  for (size_t k0 = 0; k0 < a.weight.cols; k0 += kTileDepth) {
    LoadWeights<kFormat, kAlign>(a.weight, row0, k0, shared);
    LoadTokens(a, token0, k0, shared);
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
#pragma unroll
  for (int t = 0; t < 8; ++t) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const size_t token = token0 + my_token + t, row = row0 + my_row + r;
      if (token < a.tokens && row < a.weight.rows) {
        a.y[token * a.y_stride + row] = MaybeRound(sums[t][r], a.round_bf16);
      }
    }
  }
}

// Where `only_if` is given, nothing is done unless it is set on the device.
template <WeightFormat kFormat, size_t kAlign>
void RunTiles(const TileArgs& args, const int* only_if = nullptr) {
  const dim3 grid(Blocks(args.weight.rows, kTileRows),
                  Blocks(args.tokens, kTileTokens));
  LaunchOverlapped(TileKernel<kFormat, kAlign>, grid, kTileThreads, 0, "matmul",
                   args, only_if);
}

}  // namespace ecphory::cuda
