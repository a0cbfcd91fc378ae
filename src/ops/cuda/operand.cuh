// x as the other operand of tensor-core products with packed weights
// (ops/cuda/weight_fragment.cuh): split into parts of 16 bits that add up to
// it. Parts of fp16 are taken of x times a power of two, one for a token, that
// brings its largest magnitude to [2^14, 2^15): two of them keep 22 bits of x,
// and no bit above 2^-39 of the largest is lost. Three of bf16 keep all of it.
#pragma once

#include <cstdint>

#include "ops/cuda/codec.cuh"
#include "ops/cuda/weight_fragment.cuh"

namespace ecphory::cuda {

// The bits of |x|, 0 for what is not finite: magnitudes compare like integers.
__device__ inline uint32_t FiniteBits(float x) {
  const uint32_t bits = __float_as_uint(x) & 0x7fffffffu;
  return bits < 0x7f800000u ? bits : 0;
}

// For the largest FiniteBits() of a token: what x is multiplied by, so that it
// lies in [2^top, 2^(top + 1)), and what products are. Powers of two, both
// normal.
struct OperandScale {
  __device__ explicit OperandScale(uint32_t largest, int top = 14) {
    // 2^(e - 127) <= largest.
    const int e = static_cast<int>(largest >> 23);
    in = __uint_as_float(static_cast<uint32_t>(min(254 + top - e, 253)) << 23);
    out = __uint_as_float(static_cast<uint32_t>(max(e - top, 1)) << 23);
  }
  float in, out;
};

// The next part of two numbers, which keep what is missing.
template <bool kBf16>
__device__ inline uint32_t TakeParts(float& low, float& high) {
  float2 part;
  uint32_t bits;
  if constexpr (kBf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    bits = *reinterpret_cast<const uint32_t*>(&pair);
    part = __bfloat1622float2(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    bits = *reinterpret_cast<const uint32_t*>(&pair);
    part = __half22float2(pair);
  }
  // An infinity or NaN is all in its first part.
  low = fabsf(part.x) < INFINITY ? low - part.x : 0.0f;
  high = fabsf(part.y) < INFINITY ? high - part.y : 0.0f;
  return bits;
}

// Adds up a token's columns: its parts lie in two or four neighbouring columns
// of the sums, two in a lane. Lane 4g + t then has rows g and g + 8 of token
// tile * 8 / kColumns + t * 2 / kColumns.
template <int kColumns>
__device__ inline float2 AddParts(const float (&sums)[4], int t) {
  if constexpr (kColumns == 2) {
    return make_float2(sums[0] + sums[1], sums[2] + sums[3]);
  }
  // Three of four columns are parts.
  float2 row = t % 2 == 0 ? make_float2(sums[0] + sums[1], sums[2] + sums[3])
                          : make_float2(sums[0], sums[2]);
  row.x += __shfl_xor_sync(0xffffffffu, row.x, 1);
  row.y += __shfl_xor_sync(0xffffffffu, row.y, 1);
  return row;
}

// Exchanges words among four neighbouring lanes: word p of lane t becomes word
// t of lane p.
__device__ inline void TransposeWords(uint32_t (&words)[4]) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned lanes = 0xfu << (lane & 28);
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      uint32_t& low = words[i];
      uint32_t& high = words[i + step];
      const uint32_t got = __shfl_xor_sync(lanes, upper ? low : high, step);
      (upper ? low : high) = got;
    }
  }
}

// Eight values of a row at the positions of a lane, run `i` of the row's runs.
// Rows are multiples of 16 bytes.
template <WeightFormat kFormat, typename F = Fragment<kFormat>>
struct Eight {
  __device__ void Load(const float* row, int i) {
    const float* const from = row + i / 4 * 32 + i % 4 * F::kFirst;
    a = *reinterpret_cast<const float4*>(from);
    b = *reinterpret_cast<const float4*>(from + F::kSecond);
  }
  __device__ uint32_t Largest() const {
    return max(max(max(FiniteBits(a.x), FiniteBits(a.y)),
                   max(FiniteBits(a.z), FiniteBits(a.w))),
               max(max(FiniteBits(b.x), FiniteBits(b.y)),
                   max(FiniteBits(b.z), FiniteBits(b.w))));
  }
  // Its first `pieces` parts, `pitch` halves apart. Where words are to be
  // transposed, four neighbouring lanes call it for runs of one block.
  __device__ void Split(float scale, int pieces, int pitch,
                        uint16_t* to) const {
    float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] *= scale;
#pragma unroll
    for (int piece = 0; piece < F::kPieces; ++piece) {
      if (piece >= pieces) break;
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[j] =
            TakeParts<F::kBf16>(v[F::Order(2 * j)], v[F::Order(2 * j + 1)]);
      }
      if constexpr (F::kTransposed) TransposeWords(words);
      *reinterpret_cast<uint4*>(to + piece * pitch) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
  float4 a, b;
};

// The parts of `tokens` rows of x, which row_of(token) gives, in shared memory,
// at parts[(token * kPieces + piece) * pitch + position]; out_scale[token] is
// what products are times. All kThreads threads of the block call it, and
// synchronize afterwards; meanwhile() is called once, by all, while the first
// loads are on their way. Tokens are taken at the same time, each by some of
// the warps; a thread keeps up to kHeld runs of 8. `largest` holds kThreads /
// 32 numbers.
template <WeightFormat kFormat, int kThreads, typename RowOf, typename Other>
__device__ void SplitOperand(const RowOf& row_of, int cols, int tokens,
                             int pitch, uint16_t* parts, float* out_scale,
                             uint32_t* largest, const Other& meanwhile) {
  using F = Fragment<kFormat>;
  constexpr int kHeld = kThreads >= 512 ? 2 : 3;
  // Threads of a token: a power of two that leaves one for each.
  const int threads = kThreads >> (32 - __clz(tokens - 1));
  const int token = static_cast<int>(threadIdx.x) / threads;
  const int first = static_cast<int>(threadIdx.x) % threads;
  const bool used = token < tokens;
  const int runs = used ? cols / 8 : 0;
  const float* const row = row_of(used ? token : 0);
  Eight<kFormat> held[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = first + j * threads;
    if (i < runs) held[j].Load(row, i);
  }
  meanwhile();
  float scale = 1, out = 1;
  if constexpr (!F::kBf16) {
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (first + j * threads < runs) most = max(most, held[j].Largest());
    }
#pragma unroll 2
    for (int i = first + kHeld * threads; i < runs; i += threads) {
      Eight<kFormat> more;
      more.Load(row, i);
      most = max(most, more.Largest());
    }
    most = __reduce_max_sync(0xffffffffu, most);
    const int warps = threads / 32;
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = most;
    __syncthreads();
    most = largest[token * warps + static_cast<int>(threadIdx.x % 32) % warps];
    const OperandScale scales(__reduce_max_sync(0xffffffffu, most));
    scale = scales.in, out = scales.out;
  }
  if (!used) return;
  if (first == 0) out_scale[token] = out;
  uint16_t* const to = parts + token * F::kPieces * pitch;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = first + j * threads;
    if (i < runs) held[j].Split(scale, F::kPieces, pitch, to + 8 * i);
  }
  for (int i = first + kHeld * threads; i < runs; i += kHeld * threads) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (i + j * threads < runs) held[j].Load(row, i + j * threads);
    }
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (i + j * threads < runs) {
        held[j].Split(scale, F::kPieces, pitch, to + 8 * (i + j * threads));
      }
    }
  }
}

}  // namespace ecphory::cuda
