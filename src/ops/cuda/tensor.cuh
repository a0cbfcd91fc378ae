// bf16 products on tensor cores: m16n8k16, and its operands in shared memory.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "ops/cuda/shared_place.cuh"

namespace ecphory::cuda {

// d += a * b: a 16 x 16, b 16 x 8; sums in fp32.
__device__ inline void MultiplyBf16(float (&d)[4], const uint32_t (&a)[4],
                                    uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two values as sums of two bf16 each, the first value in the lower half.
struct SplitPair {
  uint32_t high, low;
};
__device__ inline SplitPair SplitBf16(float x, float y) {
  const __nv_bfloat162 high = __floats2bfloat162_rn(x, y);
  const float2 back = __bfloat1622float2(high);
  const __nv_bfloat162 low = __floats2bfloat162_rn(x - back.x, y - back.y);
  return {*reinterpret_cast<const uint32_t*>(&high),
          *reinterpret_cast<const uint32_t*>(&low)};
}

}  // namespace ecphory::cuda
