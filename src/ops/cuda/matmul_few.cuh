// y = x W^T for a few tokens: bound by reading W. A warp takes a few rows at a
// time; its lanes take runs of them in turn, so that a warp reads whole lines,
// and the loads of the next step are on their way while one is multiplied.
#pragma once

#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

inline constexpr size_t kMaxFewTokens = 8;

// x in shared memory, laid out so that the 32 lanes of a warp read 32
// neighbouring vectors of four: value k of a step of 32 runs lies at
// [k % run / 4][k / run].
template <int kRun>
struct LaneLayout {
  static constexpr size_t kStep = kWarp * kRun;
  static __device__ size_t VectorOf(size_t k) {
    const size_t in_step = k % kStep;
    return k / kStep * (kStep / 4) + in_step % kRun / 4 * kWarp +
           in_step / kRun;
  }
  static __host__ __device__ size_t Padded(size_t cols) {
    return (cols + kStep - 1) / kStep * kStep;
  }
};

template <int kRun>
__device__ inline float Dot(const float (&w)[kRun], const float4* x) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kRun / 4; ++j) {
    const float4 v = x[j * kWarp];
    sum = fmaf(w[4 * j], v.x, sum);
    sum = fmaf(w[4 * j + 1], v.y, sum);
    sum = fmaf(w[4 * j + 2], v.z, sum);
    sum = fmaf(w[4 * j + 3], v.w, sum);
  }
  return sum;
}

struct FewTokensArgs {
  Matrix weight;
  const float* x;
  float* y;
  size_t x_stride;
  size_t y_stride;
  bool round_bf16;
};

inline constexpr unsigned kFewWarps = 8;
// Shared memory that x may take, of the 227 KiB that a block can have.
inline constexpr size_t kMaxShared = 200 << 10;

// A standing grid: each block loads x once, then its warps take groups of rows.
template <WeightFormat kFormat, size_t kAlign, int kRows, int kTokens>
__global__ void __launch_bounds__(kFewWarps* kWarp)
    FewTokensKernel(FewTokensArgs a) {
  using Row = Weight<kFormat, kAlign>;
  using Layout = LaneLayout<Row::kRun>;
  extern __shared__ float4 shared[];
  const size_t cols = a.weight.cols, rows = a.weight.rows;
  const size_t padded = Layout::Padded(cols);
  for (size_t i = threadIdx.x; i < kTokens * padded / 4; i += blockDim.x) {
    const size_t t = i / (padded / 4), k = i % (padded / 4) * 4;
    float4 v = make_float4(0, 0, 0, 0);
    if (k < cols) {  // whole runs: a multiple of four
      const float* const p = a.x + t * a.x_stride + k;
      v = make_float4(p[0], p[1], p[2], p[3]);
    }
    shared[t * (padded / 4) + Layout::VectorOf(k)] = v;
  }
  __syncthreads();
  const size_t lane = threadIdx.x % kWarp, runs = cols / Row::kRun;
  const size_t groups = (rows + kRows - 1) / kRows;
  size_t group = blockIdx.x * kFewWarps + threadIdx.x / kWarp;
  for (; group < groups; group += gridDim.x * size_t{kFewWarps}) {
    const size_t first = group * kRows;
    const auto load = [&](size_t run, typename Row::Raw(&raw)[kRows]) {
      run = min(run, runs - 1);  // past the end x is 0
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        raw[r] = Row(a.weight, min(first + r, rows - 1)).Load(run);
      }
    };
    float sums[kRows][kTokens] = {};
    typename Row::Raw next[kRows];
    load(lane, next);
    for (size_t step = 0; step < padded; step += Layout::kStep) {
      typename Row::Raw raw[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) raw[r] = next[r];
      const size_t run = step / Row::kRun + lane;
      if (step + Layout::kStep < padded) load(run + kWarp, next);
      const float4* const x = shared + step / 4 + lane;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float w[Row::kRun];
        const float factor = Row::Decode(raw[r], w);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          sums[r][t] =
              fmaf(factor, Dot<Row::kRun>(w, x + t * (padded / 4)), sums[r][t]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float sum = WarpSum(sums[r][t]);
        if (lane == 0 && first + r < rows) {
          a.y[t * a.y_stride + first + r] = MaybeRound(sum, a.round_bf16);
        }
      }
    }
  }
}

template <WeightFormat kFormat, size_t kAlign, int kRows, int kTokens>
void LaunchFew(const FewTokensArgs& args) {
  const auto kernel = FewTokensKernel<kFormat, kAlign, kRows, kTokens>;
  constexpr int kRun = Weight<kFormat, kAlign>::kRun;
  const size_t shared =
      LaneLayout<kRun>::Padded(args.weight.cols) * kTokens * sizeof(float);
  AllowSharedMemory(kernel, shared, "matmul");
  int resident = 1;  // blocks a multiprocessor
  Note(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                     kFewWarps * kWarp, shared),
       "matmul");
  const unsigned standing =
      static_cast<unsigned>(std::max(resident, 1) * Multiprocessors());
  const unsigned wanted = Blocks(args.weight.rows, kFewWarps * kRows);
  kernel<<<std::min(wanted, standing), kFewWarps * kWarp, shared,
           Current().stream>>>(args);
  NoteLaunch("matmul");
}

// One token: fewer rows a warp where there are too few for every warp.
template <WeightFormat kFormat, size_t kAlign>
void LaunchOne(const FewTokensArgs& args) {
  const size_t warps = static_cast<size_t>(Multiprocessors()) * 2 * kFewWarps;
  if (args.weight.rows >= 4 * warps) {
    LaunchFew<kFormat, kAlign, 4, 1>(args);
  } else if (args.weight.rows >= 2 * warps) {
    LaunchFew<kFormat, kAlign, 2, 1>(args);
  } else {
    LaunchFew<kFormat, kAlign, 1, 1>(args);
  }
}

// cols: whole runs that fit into shared memory; rows aligned to kAlign.
template <WeightFormat kFormat, size_t kAlign>
void RunFew(FewTokensArgs args, size_t tokens) {
  constexpr int kRun = Weight<kFormat, kAlign>::kRun;
  const size_t fit =
      kMaxShared / sizeof(float) / LaneLayout<kRun>::Padded(args.weight.cols);
  while (tokens > 0) {
    const size_t most = std::min(tokens, fit);
    size_t done = 1;
    if (most >= 8) {
      done = 8;
      LaunchFew<kFormat, kAlign, 1, 8>(args);
    } else if (most >= 4) {
      done = 4;
      LaunchFew<kFormat, kAlign, 2, 4>(args);
    } else if (most >= 2) {
      done = 2;
      LaunchFew<kFormat, kAlign, 2, 2>(args);
    } else {
      LaunchOne<kFormat, kAlign>(args);
    }
    tokens -= done;
    args.x += done * args.x_stride;
    args.y += done * args.y_stride;
  }
}

}  // namespace ecphory::cuda
