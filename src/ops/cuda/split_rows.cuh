// x split into parts (ops/cuda/operand.cuh) in device memory, for kernels that
// read each row many times.
#pragma once

#include "ops/cuda/operand.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// Rows of parts: of row r, part p lies at parts[(r * pieces + p) * pitch]; the
// products of a row are to be multiplied by scales[r].
struct SplitRows {
  uint16_t* parts;
  float* scales;
  int pieces;    // of F::kPieces, those that are kept
  size_t pitch;  // halves
};

// Columns are read in pieces of 128.
inline size_t SplitPitch(size_t cols) { return (cols + 127) / 128 * 128; }

inline constexpr int kSplitThreads = 256;

// To rows row_of(i) of `to`, i < n; a negative one is left out. A thread keeps
// the first kHeld of its runs of 8 between the passes that find the largest
// value and that split.
template <WeightFormat kFormat, typename F = Fragment<kFormat>, typename RowOf>
__device__ void SplitRow(const float* row, int cols, int n, const RowOf& row_of,
                         const SplitRows& to) {
  constexpr int kHeld = 4;
  using Run = Eight<kFormat, F>;
  __shared__ uint32_t largest[kSplitThreads / 32];
  const int runs = cols / 8;
  Run held[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kSplitThreads;
    if (i < runs) held[j].Load(row, i);
  }
  const int others = static_cast<int>(threadIdx.x) + kHeld * kSplitThreads;
  float scale = 1, out = 1;
  if constexpr (!F::kBf16) {
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kSplitThreads;
      if (i < runs) most = max(most, held[j].Largest());
    }
    for (int i = others; i < runs; i += kSplitThreads) {
      Run v;
      v.Load(row, i);
      most = max(most, v.Largest());
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
    __syncthreads();
    most = largest[threadIdx.x % (kSplitThreads / 32)];
    const OperandScale scales(__reduce_max_sync(0xffffffffu, most));
    scale = scales.in, out = scales.out;
  }
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kSplitThreads) {
    if (row_of(i) >= 0) to.scales[row_of(i)] = out;
  }
  const auto split = [&](const Run& v, int i) {
    for (int j = 0; j < n; ++j) {
      const int64_t r = row_of(j);
      if (r < 0) continue;
      v.Split(scale, to.pieces, static_cast<int>(to.pitch),
              to.parts + static_cast<size_t>(r) * to.pieces * to.pitch + 8 * i);
    }
  };
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kSplitThreads;
    if (i < runs) split(held[j], i);
  }
  for (int i = others; i < runs; i += kSplitThreads) {
    Run v;
    v.Load(row, i);
    split(v, i);
  }
}

// To row r.
template <WeightFormat kFormat, typename F = Fragment<kFormat>>
__device__ void SplitRow(const float* row, int cols, size_t r,
                         const SplitRows& to) {
  SplitRow<kFormat, F>(
      row, cols, 1, [r](int) { return static_cast<int64_t>(r); }, to);
}

// A block a row. `zero`, where given, becomes 0.
template <WeightFormat kFormat, typename F = Fragment<kFormat>>
__global__ void __launch_bounds__(kSplitThreads)
    SplitRowsKernel(const float* x, size_t x_stride, int cols, SplitRows to,
                    int* zero) {
  LetNextStart();
  WaitForEarlier();
  if (zero != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *zero = 0;
  SplitRow<kFormat, F>(x + blockIdx.x * x_stride, cols, blockIdx.x, to);
}

}  // namespace ecphory::cuda
