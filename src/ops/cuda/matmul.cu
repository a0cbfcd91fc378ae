// Which kernel multiplies: by the format, the alignment of the rows and the
// number of tokens.
#include "ops/matmul.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/matmul_few.cuh"
#include "ops/cuda/matmul_mma.cuh"
#include "ops/cuda/matmul_side.cuh"
#include "ops/cuda/matmul_stream.cuh"
#include "ops/cuda/matmul_tile.cuh"
#include "ops/cuda/matmul_vector.cuh"
#include "ops/cuda/matmul_wide.cuh"

namespace ecphory::cuda {

namespace {

// Any shape and alignment, a warp a result: for odd matrices, which are small.
__global__ void OddKernel(TileArgs a) {
  const size_t row = blockIdx.x, token = blockIdx.y;
  const float* const x = a.x + token * a.x_stride;
  float sum = 0;
  for (size_t k = threadIdx.x; k < a.weight.cols; k += kWarp) {
    sum = fmaf(WeightValue(a.weight, row, k), x[k], sum);
  }
  sum = WarpSum(sum);
  if (threadIdx.x == 0) {
    a.y[token * a.y_stride + row] = MaybeRound(sum, a.round_bf16);
  }
}

void RunOdd(const TileArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.weight.rows),
                  static_cast<unsigned>(args.tokens));
  OddKernel<<<grid, kWarp, 0, Current().stream>>>(args);
  NoteLaunch("matmul");
}

template <WeightFormat kFormat, size_t kAlign>
void Run(const TileArgs& args) {
  constexpr size_t kRun = Weight<kFormat, kAlign>::kRun;
  const size_t padded = LaneLayout<kRun>::Padded(args.weight.cols);
  if (args.weight.cols % kRun != 0 || AlignmentOf(args.weight) < kAlign ||
      padded * sizeof(float) > kMaxShared) {
    RunOdd(args);
  } else if (args.tokens <= kMaxFewTokens) {
    RunFew<kFormat, kAlign>({args.weight, args.x, args.y, args.x_stride,
                             args.y_stride, args.round_bf16},
                            args.tokens);
  } else {
    RunTiles<kFormat, kAlign>(args);
  }
}

StreamProduct ProductOf(const TileArgs& a) {
  return {.weight = a.weight,
          .x = a.x,
          .y = a.y,
          .x_stride = a.x_stride,
          .y_stride = a.y_stride,
          .round_bf16 = a.round_bf16};
}

VectorProduct VectorOf(const TileArgs& a) {
  return {.weight = a.weight,
          .x = a.x,
          .y = a.y,
          .x_stride = a.x_stride,
          .y_stride = a.y_stride,
          .round_bf16 = a.round_bf16};
}

// Few tokens are multiplied with these by ops/cuda/matmul_vector.cuh, with
// other formats by ops/cuda/matmul_stream.cuh. That takes FP8 matrices of more
// bytes, too, which decoding does not bound, unless their columns are many: it
// has two blocks on a multiprocessor, but then none of the next launch's (8192
// x 4096 on an H200 10.8 us, where the other takes 12.3; 2304 x 5120 6.9 and
// 5.7; 5120 x 8192 16.5 and 15.4; with 25600 x 6144 a step takes 12 us less).
template <WeightFormat kFormat>
inline constexpr bool kHasVector =
    kFormat == WeightFormat::kFp8Tile32 || kFormat == WeightFormat::kFp4Row32 ||
    kFormat == WeightFormat::kQ8_0;
inline constexpr size_t kMostFp8Bytes = size_t{16} << 20;  // of a launch
inline constexpr size_t kMostFp8Cols = 6144;

template <WeightFormat kFormat>
bool CanBeVector(const TileArgs& a) {
  if constexpr (kHasVector<kFormat>) {
    return CanVector<kFormat>(a.weight, a.x, a.x_stride);
  }
  return false;
}

// Whether one of both takes it.
template <WeightFormat kFormat>
bool TakesFew(const TileArgs& a) {
  return a.weight.format == kFormat && a.weight.rows > 0 && a.tokens > 0 &&
         a.tokens <= kMaxFewTokens && !CanSide(a) &&
         (CanBeVector<kFormat>(a) ||
          CanStream<kFormat>(a.weight, a.x, a.x_stride));
}

// Products that it takes, of as many tokens each, several a launch.
template <WeightFormat kFormat>
void RunFewTokens(const std::vector<TileArgs>& products) {
  VectorArgs vectors{};
  StreamArgs streams{};
  const size_t tokens = products[0].tokens;
  const auto run_vectors = [&] {
    if constexpr (kHasVector<kFormat>) {
      if (vectors.count > 0) RunVector<kFormat>(vectors, tokens);
    }
    vectors.count = 0;
  };
  const auto run_streams = [&] {
    if (streams.count > 0) RunStream<kFormat>(streams, tokens);
    streams.count = 0;
  };
  size_t bytes = 0, cols = 0;
  for (const TileArgs& a : products) {
    bytes += a.weight.rows * a.weight.row_bytes();
    cols = std::max(cols, a.weight.cols);
  }
  const bool large = kFormat == WeightFormat::kFp8Tile32 &&
                     bytes > kMostFp8Bytes && cols <= kMostFp8Cols;
  for (const TileArgs& a : products) {
    if (CanBeVector<kFormat>(a) &&
        (!large || !CanStream<kFormat>(a.weight, a.x, a.x_stride))) {
      vectors.of[vectors.count++] = VectorOf(a);
      if (vectors.count == kMostVectorProducts) run_vectors();
    } else {
      streams.of[streams.count++] = ProductOf(a);
      if (streams.count == kMostProducts) run_streams();
    }
  }
  run_vectors(), run_streams();
}

// Whether kFormat's tensor-core kernels took the product.
template <WeightFormat kFormat>
bool OnTensorCores(const TileArgs& a, bool bf16) {
  if (a.tokens <= kMaxFewTokens && !CanSide(a)) {
    if (!TakesFew<kFormat>(a)) return false;
    RunFewTokens<kFormat>({a});
    return true;
  }
  if (a.tokens > kSharedDepthTokens && CanWide(a)) {
    const int* const refused = RunWide(a, bf16);
    if (refused != nullptr) RunTiles<kFormat, 16>(a, refused);
    return true;
  }
  if (CanSide(a)) {
    RunSide({&a, 1});
    return true;
  }
  if (!CanMma<kFormat>(a)) return false;
  RunMma<kFormat>(a, bf16);
  return true;
}

bool OnTensorCores(const TileArgs& a, bool bf16) {
  switch (a.weight.format) {
    case WeightFormat::kF16: return OnTensorCores<WeightFormat::kF16>(a, bf16);
    case WeightFormat::kBF16:
      return OnTensorCores<WeightFormat::kBF16>(a, bf16);
    case WeightFormat::kQ8_0:
      return OnTensorCores<WeightFormat::kQ8_0>(a, bf16);
    case WeightFormat::kMXFP4:
      return OnTensorCores<WeightFormat::kMXFP4>(a, bf16);
    case WeightFormat::kFp8Tile32:
      return OnTensorCores<WeightFormat::kFp8Tile32>(a, bf16);
    case WeightFormat::kFp4Row32:
      return OnTensorCores<WeightFormat::kFp4Row32>(a, bf16);
    default: return false;
  }
}

TileArgs TileOf(const MatmulArgs& args) {
  return {.weight = args.weight,
          .x = args.x,
          .y = args.y,
          .tokens = args.tokens,
          .x_stride = args.x_stride != 0 ? args.x_stride : args.weight.cols,
          .y_stride = args.y_stride != 0 ? args.y_stride : args.weight.rows,
          .round_bf16 = args.round_bf16,
          .bf16 = IsBf16(args.input)};
}

// Those of kFormat that are of few tokens.
template <WeightFormat kFormat>
void RunFewTokens(const Calls<MatmulArgs>& calls) {
  std::vector<TileArgs> some;
  for (const MatmulArgs& args : calls) {
    const TileArgs a = TileOf(args);
    if (TakesFew<kFormat>(a)) some.push_back(a);
  }
  if (!some.empty()) RunFewTokens<kFormat>(some);
}

// Those of `format` that can be, several a launch.
void RunSides(const Calls<MatmulArgs>& calls, WeightFormat format) {
  std::vector<TileArgs> some;
  for (const MatmulArgs& args : calls) {
    const TileArgs a = TileOf(args);
    if (a.weight.format == format && CanSide(a)) some.push_back(a);
    if (some.size() == kMostSideProducts) {
      RunSide(some);
      some.clear();
    }
  }
  if (!some.empty()) RunSide(some);
}

template <WeightFormat... kFormats>
void RunStreams(const Calls<MatmulArgs>& calls, ThreadPool& pool) {
  (RunFewTokens<kFormats>(calls), ...);
  (RunSides(calls, kFormats), ...);
  for (const MatmulArgs& args : calls) {
    const TileArgs a = TileOf(args);
    if ((TakesFew<kFormats>(a) || ...) || CanSide(a)) continue;
    Matmul(args, pool);
  }
}

}  // namespace

void Matmuls(const Calls<MatmulArgs>& calls, ThreadPool& pool) {
  RunStreams<WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kQ8_0,
             WeightFormat::kMXFP4, WeightFormat::kFp8Tile32,
             WeightFormat::kFp4Row32>(calls, pool);
}

void Matmul(const MatmulArgs& args, ThreadPool&) {
  if (args.tokens == 0 || args.weight.rows == 0) return;
  const TileArgs tile = TileOf(args);
  if (OnTensorCores(tile, IsBf16(args.input))) return;
  switch (args.weight.format) {
    case WeightFormat::kF32: return Run<WeightFormat::kF32, 16>(tile);
    case WeightFormat::kF16: return Run<WeightFormat::kF16, 16>(tile);
    case WeightFormat::kBF16: return Run<WeightFormat::kBF16, 16>(tile);
    case WeightFormat::kQ8_0: return Run<WeightFormat::kQ8_0, 2>(tile);
    case WeightFormat::kMXFP4: return Run<WeightFormat::kMXFP4, 1>(tile);
    case WeightFormat::kQ4_K: return Run<WeightFormat::kQ4_K, 16>(tile);
    case WeightFormat::kQ2_K: return Run<WeightFormat::kQ2_K, 4>(tile);
    case WeightFormat::kIQ2_XXS: return Run<WeightFormat::kIQ2_XXS, 2>(tile);
    case WeightFormat::kFp8Tile32:
      return Run<WeightFormat::kFp8Tile32, 16>(tile);
    case WeightFormat::kFp4Row32: return Run<WeightFormat::kFp4Row32, 16>(tile);
  }
}

}  // namespace ecphory::cuda
