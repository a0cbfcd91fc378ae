// A thread decodes eight neighbouring values of a row: of 264-byte rows eight
// codes, read at once where their address allows it, and 16 or 32 bytes
// written. Bound by memory.
#include "engram/cuda/row_decode.h"

#include "ops/cuda/codec.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::engram {

namespace {

using namespace ecphory::cuda;

constexpr unsigned kThreads = 256;
constexpr unsigned kValues = 8;

__device__ bool IsFinite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

__device__ uint16_t Load16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

// Eight bytes; `aligned` to as many.
__device__ uint2 Load64(const uint8_t* p, bool aligned) {
  if (aligned) return __ldg(reinterpret_cast<const uint2*>(p));
  uint2 v{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.x |= static_cast<uint32_t>(p[i]) << (8 * i);
    v.y |= static_cast<uint32_t>(p[4 + i]) << (8 * i);
  }
  return v;
}

__device__ float E4M3Value(uint32_t code) {
  return E4M3ToF32(static_cast<uint8_t>(code));
}

// Values [first, first + 8) of a row, before they are rounded to bf16. False
// for a scale that is not finite: its codes must not hide it.
template <TableCodec kCodec>
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
    const uint2 codes = Load64(row + first, aligned);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t word = i < 4 ? codes.x : codes.y;
      x[i] = E4M3Value(word >> (8 * (i % 4)) & 0xff) * scale;
    }
    return true;
  } else if constexpr (kCodec == TableCodec::kBf16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = BF16ToF32(Load16(row + 2 * (first + i)));
    return true;
  } else if constexpr (kCodec == TableCodec::kQ8_0) {
    const uint8_t* const from = row + block * (2 + kTableBlock);
    const float d = F16ToF32(Load16(from));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
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
    for (int i = 0; i < 8; ++i) {
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

template <TableCodec kCodec>
__global__ void __launch_bounds__(kThreads)
    Kernel(DeviceRows a, bool aligned, bool aligned_out) {
  const unsigned pieces = static_cast<unsigned>(a.width) / kValues;
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  const size_t r = i / pieces;
  if (r >= a.count) return;
  const unsigned first = static_cast<unsigned>(i % pieces) * kValues;
  float x[kValues];
  bool ok = Decode<kCodec>(a, r, first, aligned, x);
#pragma unroll
  for (float& value : x) {
    value = RoundToBF16(value);
    ok = ok && IsFinite(value);
  }
  if (!ok) atomicMin(a.first_broken, static_cast<uint32_t>(r));
  const size_t at = r * a.width + first;
  if (a.f32 != nullptr) {
    if (aligned_out) {
      float4* const to = reinterpret_cast<float4*>(a.f32 + at);
      to[0] = {x[0], x[1], x[2], x[3]};
      to[1] = {x[4], x[5], x[6], x[7]};
    } else {
      for (unsigned j = 0; j < kValues; ++j) a.f32[at + j] = x[j];
    }
    return;
  }
  const uint4 pairs = {PairOf(x[0], x[1]), PairOf(x[2], x[3]),
                       PairOf(x[4], x[5]), PairOf(x[6], x[7])};
  if (aligned_out) {
    *reinterpret_cast<uint4*>(a.bf16 + at) = pairs;
    return;
  }
  const uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
  for (unsigned j = 0; j < kValues; ++j) {
    a.bf16[at + j] = static_cast<uint16_t>(words[j / 2] >> (16 * (j % 2)));
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

void DecodeRowsOnDevice(const DeviceRows& rows) {
  if (rows.count == 0) return;
  const bool aligned = Aligned(rows.rows, 8) && rows.row_stride % 8 == 0;
  const bool aligned_out = Aligned(rows.f32, 16) && Aligned(rows.bf16, 16);
  KernelOf(rows.codec)<<<Blocks(rows.count * (rows.width / kValues), kThreads),
                         kThreads, 0, Current().stream>>>(rows, aligned,
                                                          aligned_out);
  NoteLaunch("row decode");
}

}  // namespace ecphory::engram
