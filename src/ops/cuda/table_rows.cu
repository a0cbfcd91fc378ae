// A thread decodes four neighbouring values of a row, so that it writes 16
// bytes; of 264-byte rows it reads their codes at once where the address allows
// it. Bound by memory, or by the bus where the rows are the host's.
#include "ops/table_rows.h"

#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int kValues = 4;  // of a thread

__device__ bool IsFinite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

__device__ uint16_t Load16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

__device__ uint32_t LoadFour(const uint8_t* p, bool aligned) {
  if (aligned) return __ldg(reinterpret_cast<const uint32_t*>(p));
  return p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
}

__device__ float E4M3Value(uint32_t code) {
  return E4M3ToF32(static_cast<uint8_t>(code));
}

// Values [first, first + kValues) of a row, before they are rounded to bf16.
// False for a scale that is not finite: its codes must not hide it.
template <TableCodec kCodec>
__device__ bool Decode(const TableRows& from, size_t width, uint64_t number,
                       unsigned first, bool aligned, float (&x)[kValues]) {
  const uint8_t* const row = from.rows + number * from.row_stride;
  const unsigned block = first / kTableBlock, at = first % kTableBlock;
  if constexpr (kCodec == TableCodec::kRow264 ||
                kCodec == TableCodec::kReleasedPair) {
    const uint8_t* const scales =
        kCodec == TableCodec::kRow264
            ? row + width
            : from.scales + number * from.scale_stride;
    const float scale = E8M0ToF32(scales[block]);
    const uint32_t codes = LoadFour(row + first, aligned);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      x[i] = E4M3Value(codes >> (8 * i) & 0xff) * scale;
    }
    return true;
  } else if constexpr (kCodec == TableCodec::kBf16) {
#pragma unroll
    for (int i = 0; i < kValues; i += 2) {
      const uint32_t pair = LoadFour(row + 2 * (first + i), aligned);
      x[i] = __uint_as_float(pair << 16);
      x[i + 1] = __uint_as_float(pair & 0xffff0000u);
    }
    return true;
  } else if constexpr (kCodec == TableCodec::kQ8_0) {
    const uint8_t* const codes = row + block * (2 + kTableBlock);
    const float d = F16ToF32(Load16(codes));
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      x[i] = d * static_cast<float>(static_cast<int8_t>(codes[2 + at + i]));
    }
    return IsFinite(d);
  } else {
    // The first half of a block lies in the low nibbles.
    constexpr bool kOffset = kCodec == TableCodec::kQ4_1;
    constexpr unsigned kHead = kOffset ? 4 : 2, kHalf = kTableBlock / 2;
    const uint8_t* const codes = row + block * (kHead + kHalf);
    const float d = F16ToF32(Load16(codes));
    const float m = kOffset ? F16ToF32(Load16(codes + 2)) : 0.0f;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const uint8_t byte = codes[kHead + at % kHalf + i];
      const float code = static_cast<float>(at < kHalf ? byte & 15 : byte >> 4);
      x[i] = kOffset ? fmaf(d, code, m) : d * (code - 8);
    }
    return IsFinite(d) && IsFinite(m);
  }
}

template <TableCodec kCodec>
__global__ void __launch_bounds__(kThreads)
    Kernel(DecodeRowsArgs args, bool aligned, bool aligned_out) {
  LetNextStart();
  const unsigned pieces = static_cast<unsigned>(args.width) / kValues;
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  const size_t r = i / pieces;
  if (r >= args.count) return;
  const uint64_t number =
      args.from.numbers == nullptr ? r : __ldg(args.from.numbers + r);
  const unsigned first = static_cast<unsigned>(i % pieces) * kValues;
  float x[kValues];
  bool ok = Decode<kCodec>(args.from, args.width, number, first, aligned, x);
#pragma unroll
  for (float& value : x) {
    value = RoundToBF16(value);
    ok = ok && IsFinite(value);
  }
  if (!ok) *args.broken = 1;
  float* const to = args.x + r * args.width + first;
  if (aligned_out) {
    *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
  } else {
    for (int j = 0; j < kValues; ++j) to[j] = x[j];
  }
}

bool Aligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

auto KernelOf(TableCodec codec) {
  switch (codec) {
    case TableCodec::kRow264: return Kernel<TableCodec::kRow264>;
    case TableCodec::kReleasedPair: return Kernel<TableCodec::kReleasedPair>;
    case TableCodec::kBf16: return Kernel<TableCodec::kBf16>;
    case TableCodec::kQ8_0: return Kernel<TableCodec::kQ8_0>;
    case TableCodec::kQ4_0: return Kernel<TableCodec::kQ4_0>;
    case TableCodec::kQ4_1: break;
  }
  return Kernel<TableCodec::kQ4_1>;
}

}  // namespace

void DecodeRows(const DecodeRowsArgs& args, ThreadPool&) {
  if (args.count == 0) return;
  const TableRows& from = args.from;
  const bool aligned = Aligned(from.rows, 4) && from.row_stride % 4 == 0;
  KernelOf(from.codec)<<<Blocks(args.count * (args.width / kValues), kThreads),
                         kThreads, 0, Current().stream>>>(
      args, aligned, Aligned(args.x, sizeof(float4)));
  NoteLaunch("decode_rows");
}

}  // namespace ecphory::cuda
