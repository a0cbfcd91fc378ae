// Packed codes as pairs of bf16, which holds every e4m3 and e2m1 value times
// its scale exactly (but where that is not finite or next to nothing).
#pragma once

#include <cuda_bf16.h>

#include "ops/cuda/codec.cuh"

namespace ecphory::cuda {

__device__ inline uint32_t BitsOf(__nv_bfloat162 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline __nv_bfloat162 PairOf(uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

// Eight e2m1 codes, the first in the lowest bits, times a scale.
__device__ inline void E2M1ToBF16(uint32_t codes, float scale,
                                  uint32_t (&pairs)[4]) {
  const __nv_bfloat162 factor = __float2bfloat162_rn(scale);
  const uint32_t magnitudes = codes & 0x77777777u;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // The lower and the upper bytes of 0, .5, 1, 1.5, 2, 3, 4, 6 in bf16.
    const uint32_t places = magnitudes >> (16 * half);
    const uint32_t lower = __byte_perm(0xC0800000u, 0xC0804000u, places);
    const uint32_t upper = __byte_perm(0x3F3F3F00u, 0x40404040u, places);
    const uint32_t signs = codes >> (16 * half);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair =
          __byte_perm(lower, upper, i == 0 ? 0x5140u : 0x7362u);
      const uint32_t sign = (signs << (12 - 8 * i) & 0x8000u) |
                            (signs << (24 - 8 * i) & 0x80000000u);
      pairs[2 * half + i] = BitsOf(__hmul2(PairOf(pair | sign), factor));
    }
  }
}

// Four e4m3 codes times a power of two.
__device__ inline void E4M3ToBF16(uint32_t codes, float scale,
                                  uint32_t (&pairs)[2]) {
  const __nv_bfloat162 factor = __float2bfloat162_rn(scale);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(
        static_cast<uint16_t>(codes >> (16 * i)), __NV_E4M3);
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&raw));
    pairs[i] = BitsOf(__hmul2(__floats2bfloat162_rn(pair.x, pair.y), factor));
  }
}

}  // namespace ecphory::cuda
