// A thread decodes neighbouring values of a row, eight to bf16 or four to fp32,
// so that it writes 16 bytes; of 264-byte rows it reads their codes at once
// where the address allows it. Bound by memory.
#include "engram/cuda/row_decode.h"

#include "ops/cuda/codec.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::engram {

namespace {

using namespace ecphory::cuda;

constexpr unsigned kThreads = 256;
__device__ bool IsFinite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

__device__ uint16_t Load16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

// Four or eight bytes, in words; `aligned` to as many.
template <int kBytes>
__device__ void LoadBytes(const uint8_t* p, bool aligned,
                          uint32_t (&words)[kBytes / 4]) {
  if (aligned) {
    if constexpr (kBytes == 8) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
      words[0] = v.x, words[1] = v.y;
    } else {
      words[0] = __ldg(reinterpret_cast<const uint32_t*>(p));
    }
    return;
  }
#pragma unroll
  for (int w = 0; w < kBytes / 4; ++w) {
    words[w] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[w] |= static_cast<uint32_t>(p[4 * w + i]) << (8 * i);
    }
  }
}

__device__ float E4M3Value(uint32_t code) {
  return E4M3ToF32(static_cast<uint8_t>(code));
}

// Values [first, first + kValues) of a row, before they are rounded to bf16.
// False for a scale that is not finite: its codes must not hide it.
template <TableCodec kCodec, int kValues>
__device__ bool Decode(const DeviceRows& a, size_t r, unsigned first,
                       bool aligned, float (&x)[kValues]) {
  const uint8_t* const row = a.rows + r * a.row_stride;
  const unsigned block = first / kTableBlock, at = first % kTableBlock;
  if constexpr (kCodec == TableCodec::kRow264 ||
                kCodec == TableCodec::kReleasedPair) {
    const uint8_t* const scales = kCodec == TableCodec::kRow264
                                      ? row + a.width
                                      : a.scales + r * a.scale_stride;
    const float scale = E8M0ToF32(scales[block]);
    uint32_t words[kValues / 4];
    LoadBytes<kValues>(row + first, aligned, words);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      x[i] = E4M3Value(words[i / 4] >> (8 * (i % 4)) & 0xff) * scale;
    }
    return true;
  } else if constexpr (kCodec == TableCodec::kBf16) {
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      x[i] = BF16ToF32(Load16(row + 2 * (first + i)));
    return true;
  } else if constexpr (kCodec == TableCodec::kQ8_0) {
    const uint8_t* const from = row + block * (2 + kTableBlock);
    const float d = F16ToF32(Load16(from));
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      x[i] = d * static_cast<float>(static_cast<int8_t>(from[2 + at + i]));
    }
    return IsFinite(d);
  } else {
    // The first half of a block lies in the low nibbles.
    constexpr bool kOffset = kCodec == TableCodec::kQ4_1;
    constexpr unsigned kHead = kOffset ? 4 : 2, kHalf = kTableBlock / 2;
    const uint8_t* const from = row + block * (kHead + kHalf);
    const float d = F16ToF32(Load16(from));
    const float m = kOffset ? F16ToF32(Load16(from + 2)) : 0.0f;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const uint8_t byte = from[kHead + at % kHalf + i];
      const float code = static_cast<float>(at < kHalf ? byte & 15 : byte >> 4);
      x[i] = kOffset ? fmaf(d, code, m) : d * (code - 8);
    }
    return IsFinite(d) && IsFinite(m);
  }
}

__device__ uint32_t PairOf(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ void StoreValues(const float (&x)[4], bool aligned, float* to) {
  if (aligned) {
    *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
    return;
  }
  for (int i = 0; i < 4; ++i) to[i] = x[i];
}
__device__ void StoreValues(const float (&x)[8], bool aligned, uint16_t* to) {
  const uint32_t words[4] = {PairOf(x[0], x[1]), PairOf(x[2], x[3]),
                             PairOf(x[4], x[5]), PairOf(x[6], x[7])};
  if (aligned) {
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    return;
  }
  for (int i = 0; i < 8; ++i) {
    to[i] = static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
  }
}

template <TableCodec kCodec, typename Value>
__global__ void __launch_bounds__(kThreads)
    Kernel(DeviceRows a, Value* values, bool aligned, bool aligned_out) {
  constexpr int kValues = 16 / sizeof(Value);
  const unsigned pieces = static_cast<unsigned>(a.width) / kValues;
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  const size_t r = i / pieces;
  if (r >= a.count) return;
  const unsigned first = static_cast<unsigned>(i % pieces) * kValues;
  float x[kValues];
  bool ok = Decode<kCodec, kValues>(a, r, first, aligned, x);
#pragma unroll
  for (float& value : x) {
    value = RoundToBF16(value);
    ok = ok && IsFinite(value);
  }
  if (!ok) atomicMin(a.first_broken, static_cast<uint32_t>(r));
  StoreValues(x, aligned_out, values + r * a.width + first);
}

bool Aligned(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

template <typename Value>
auto KernelOf(TableCodec codec) {
  switch (codec) {
    case TableCodec::kRow264: return Kernel<TableCodec::kRow264, Value>;
    case TableCodec::kReleasedPair:
      return Kernel<TableCodec::kReleasedPair, Value>;
    case TableCodec::kBf16: return Kernel<TableCodec::kBf16, Value>;
    case TableCodec::kQ8_0: return Kernel<TableCodec::kQ8_0, Value>;
    case TableCodec::kQ4_0: return Kernel<TableCodec::kQ4_0, Value>;
    case TableCodec::kQ4_1: break;
  }
  return Kernel<TableCodec::kQ4_1, Value>;
}

template <typename Value>
void Launch(const DeviceRows& rows, Value* values) {
  const size_t threads = rows.count * (rows.width * sizeof(Value) / 16);
  const bool aligned = Aligned(rows.rows, 8) && rows.row_stride % 8 == 0;
  KernelOf<Value>(
      rows.codec)<<<Blocks(threads, kThreads), kThreads, 0, Current().stream>>>(
      rows, values, aligned, Aligned(values, 16));
  NoteLaunch("row decode");
}

}  // namespace

void DecodeRowsOnDevice(const DeviceRows& rows) {
  if (rows.count == 0) return;
  rows.f32 != nullptr ? Launch(rows, rows.f32) : Launch(rows, rows.bf16);
}

}  // namespace ecphory::engram
