// Packed rows: a group of lanes per block of values, a value a lane.
#include "ops/rows.h"

#include <algorithm>

#include "ops/cuda/calls.cuh"
#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// The largest magnitude among `lanes` neighbours (16 or 32); NaN if there is
// one, so that it spreads to the scale.
__device__ float BlockMax(float x, int lanes) {
  float amax = fabsf(x);
  bool nan = isnan(x);
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, offset));
    nan |= __shfl_xor_sync(0xffffffffu, static_cast<int>(nan), offset) != 0;
  }
  return nan ? __uint_as_float(0x7fc00000u) : amax;
}

// A NaN stays one.
__device__ float ClampTo448(float x) {
  return fabsf(x) > 448.0f ? copysignf(448.0f, x) : x;
}

struct Scale {
  uint8_t code;
  float value;
};

// fl32(1/448) and fl32(1/6), as the definition rounds them.
__device__ Scale Pow2Scale(float amax, float floor, float inverse_max) {
  const uint8_t code =
      isfinite(amax) ? CeilPow2Code(fmaxf(amax, floor) * inverse_max) : 255;
  return {code, E8M0ToF32(code)};
}

__device__ Scale ScaleOf(RowFormat format, float amax) {
  switch (format) {
    case RowFormat::kFp8Block32: return Pow2Scale(amax, 1e-4f, 1.0f / 448);
    case RowFormat::kFp4Block32: return Pow2Scale(amax, 0x6p-126f, 1.0f / 6);
    default: break;
  }
  if (!isfinite(amax)) return {0x7f, E4M3ToF32(0x7f)};
  const uint8_t code =
      F32ToE4M3(fminf(__fdiv_rn(fmaxf(amax, 0x6p-9f), 6.0f), 448.0f));
  return {code, E4M3ToF32(code)};
}

// Encodes value `i` of a row, which the calling lane holds; the whole warp
// takes part, `valid` or not.
__device__ void EncodeValue(RowFormat format, float x, size_t dim, size_t i,
                            bool valid, uint8_t* row) {
  if (format == RowFormat::kF32) {
    if (valid) memcpy(row + 4 * i, &x, sizeof(x));
    return;
  }
  const int block = format == RowFormat::kFp4Block16 ? 16 : 32;
  const Scale scale = ScaleOf(format, BlockMax(x, block));
  const float scaled = __fdiv_rn(x, scale.value);
  if (format == RowFormat::kFp8Block32) {
    if (!valid) return;
    row[i] = F32ToE4M3(ClampTo448(scaled));
    if (i % 32 == 0) row[dim + i / 32] = scale.code;
    return;
  }
  const int code = F32ToE2M1(scaled);
  const int next = __shfl_down_sync(0xffffffffu, code, 1);
  if (!valid) return;
  if (i % 2 == 0) row[i / 2] = static_cast<uint8_t>(code | next << 4);
  if (i % block == 0) row[dim / 2 + i / block] = scale.code;
}

// blockIdx: values, rows, calls.
template <unsigned kMost>
__global__ void StoreKernel(
    const __grid_constant__ KernelCalls<StoreRowsArgs, kMost> calls,
    size_t row_bytes) {
  LetNextStart();
  WaitForEarlier();
  const StoreRowsArgs& args = calls[blockIdx.z];
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  const bool valid = i < args.dim;
  for (size_t r = blockIdx.y; r < args.rows; r += gridDim.y) {
    const float x = valid ? args.x[r * args.dim + i] : 0.0f;
    uint8_t* const row =
        args.cache + (args.first_row + r) % args.capacity * row_bytes;
    EncodeValue(args.format, x, args.dim, i, valid, row);
  }
}

// decode(encode(x)) without the row between them, of `count` values of rows
// that are whole blocks: several a thread, so that enough are on their way.
constexpr unsigned kRoundValues = 4;

__global__ void RoundKernel(float* x, size_t count, RowFormat format) {
  LetNextStart();
  WaitForEarlier();
  const int block = format == RowFormat::kFp4Block16 ? 16 : 32;
  const size_t first =
      blockIdx.x * size_t{kRoundValues * kThreads} + threadIdx.x;
  float v[kRoundValues];
#pragma unroll
  for (unsigned i = 0; i < kRoundValues; ++i) {
    const size_t at = first + i * kThreads;
    v[i] = at < count ? x[at] : 0.0f;
  }
#pragma unroll
  for (unsigned i = 0; i < kRoundValues; ++i) {
    const size_t at = first + i * kThreads;
    const Scale scale = ScaleOf(format, BlockMax(v[i], block));
    if (at >= count) continue;
    const float scaled = __fdiv_rn(v[i], scale.value);
    const float code = format == RowFormat::kFp8Block32
                           ? E4M3ToF32(F32ToE4M3(ClampTo448(scaled)))
                           : E2M1ToF32(F32ToE2M1(scaled));
    x[at] = code * scale.value;
  }
}

// Runs of four, several a thread, so that enough are on their way; `x` is at a
// multiple of 16 bytes where there are any.
constexpr unsigned kRoundRuns = 4;

__global__ void RoundBf16Kernel(float* x, size_t runs, size_t count) {
  LetNextStart();
  WaitForEarlier();
  const size_t first = blockIdx.x * size_t{kRoundRuns * kThreads} + threadIdx.x;
  float4 v[kRoundRuns];
#pragma unroll
  for (unsigned i = 0; i < kRoundRuns; ++i) {
    const size_t at = first + i * kThreads;
    if (at < runs) v[i] = reinterpret_cast<const float4*>(x)[at];
  }
#pragma unroll
  for (unsigned i = 0; i < kRoundRuns; ++i) {
    const size_t at = first + i * kThreads;
    if (at >= runs) continue;
    reinterpret_cast<float4*>(x)[at] = {
        RoundToBF16(v[i].x), RoundToBF16(v[i].y), RoundToBF16(v[i].z),
        RoundToBF16(v[i].w)};
  }
  for (size_t i = 4 * runs + blockIdx.x * size_t{kThreads} + threadIdx.x;
       i < count; i += size_t{gridDim.x} * kThreads) {
    x[i] = RoundToBF16(x[i]);
  }
}

// Rows go to the grid's second dimension, which has 65,535 places.
constexpr size_t kMaxRows = 65535;

}  // namespace

void StoreRows(const Calls<StoreRowsArgs>& all, ThreadPool&) {
  ForEachLaunch(all, [&]<unsigned kMost>(
                         const KernelCalls<StoreRowsArgs, kMost>& of_kernel,
                         std::span<const StoreRowsArgs> calls) {
    const size_t rows = Most(calls, &StoreRowsArgs::rows);
    if (rows == 0) return;
    const dim3 grid(Blocks(calls[0].dim, kThreads),
                    static_cast<unsigned>(std::min(rows, kMaxRows)),
                    static_cast<unsigned>(calls.size()));
    LaunchOverlapped(StoreKernel<kMost>, grid, kThreads, 0, "store_rows",
                     of_kernel, RowBytes(calls[0].format, calls[0].dim));
  });
}

void RoundRows(const RoundRowsArgs& args, ThreadPool&) {
  const size_t count = args.rows * args.dim;
  if (args.format == RowFormat::kF32 || count == 0) return;
  LaunchOverlapped(RoundKernel, dim3(Blocks(count, kRoundValues * kThreads)),
                   kThreads, 0, "round_rows", args.x, count, args.format);
}

void RoundBf16(const RoundBf16Args& args, ThreadPool&) {
  if (args.count == 0) return;
  const bool aligned = reinterpret_cast<uintptr_t>(args.x) % 16 == 0;
  const size_t runs = aligned ? args.count / 4 : 0;
  const size_t items = aligned ? CeilDiv(args.count, 4) : args.count;
  const dim3 grid(Blocks(items, kRoundRuns * kThreads));
  LaunchOverlapped(RoundBf16Kernel, grid, kThreads, 0, "round_bf16", args.x,
                   runs, args.count);
}

}  // namespace ecphory::cuda
