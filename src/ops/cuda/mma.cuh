// Tensor-core products of 16 x 16 by 16 x 8 values and copies that bypass
// registers, on compute capability 8.0 and later.
#pragma once

#include <cstdint>

#include "ops/cuda/shared_place.cuh"

namespace ecphory::cuda {

// c += a b, fp32 sums. Lane 4g + t of a warp holds, as pairs of values,
// a[0]: row g, k 2t; a[1]: row g + 8, k 2t; a[2]: row g, k 2t + 8; a[3]: row
// g + 8, k 2t + 8; b[0]: column g, k 2t; b[1]: column g, k 2t + 8; and of the
// sums c[0], c[1]: row g, columns 2t and 2t + 1; c[2], c[3]: row g + 8.
template <bool kBf16>
__device__ inline void Mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                           uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// The same of fp16 where c = 0 before.
__device__ inline void MmaFromZero(float (&c)[4], uint32_t a0, uint32_t a1,
                                   uint32_t a2, uint32_t a3, uint32_t b0,
                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

// kBytes (4, 8 or 16, both addresses multiples of it) from device to shared
// memory; done once WaitForCopies() says so.
template <int kBytes>
__device__ inline void CopyAsync(void* shared, const void* global) {
  const uint32_t to = SharedAddress(shared);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to),
                 "l"(global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to),
                 "l"(global), "n"(kBytes)
                 : "memory");
  }
}

// Has a line of memory brought into the L2 meanwhile.
__device__ inline void FetchLineToL2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Copies of a thread so far form a group; groups end in order.
__device__ inline void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the thread's kPending latest groups have arrived.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace ecphory::cuda
