// Hopper's products of a warpgroup (wgmma) and the barriers that let some warps
// fetch what others multiply. Compiled for compute capability 9.0a only; what
// calls this is guarded by ECPHORY_WGMMA.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace ecphory::cuda {

// Defined in device code that may use wgmma.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ECPHORY_WGMMA 1
#endif

// d += a b of 64 x 16 by 16 x kN values of 16 bits, fp32 sums, on the four
// warps of a warpgroup; `keep` 0: d = a b. Warp w has rows 16w.. of a and d: a
// is that of Mma() (ops/cuda/mma.cuh), d[4j..] its c of columns 8j... `b`
// describes kN rows of shared memory (SwizzledRows()). Runs on its own until
// WaitForProducts(); neither a nor d may be touched meanwhile.
template <int kN>
struct Wgmma;

#define ECPHORY_WGMMA_32(TYPE)                                             \
  asm volatile(                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE          \
      " "                                                                  \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
      "%15}, "                                                             \
      "{%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}\n"                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),        \
        "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),        \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),   \
        "+f"(d[15])                                                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

template <>
struct Wgmma<32> {
  template <bool kBf16>
  static __device__ void Add(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                             int keep) {
    if constexpr (kBf16) {
      ECPHORY_WGMMA_32("bf16");
    } else {
      ECPHORY_WGMMA_32("f16");
    }
  }
};

#define ECPHORY_WGMMA_64(TYPE)                                             \
  asm volatile(                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE          \
      " "                                                                  \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "  \
      "%28, %29, %30, %31}, "                                              \
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),        \
        "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),        \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),   \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),   \
        "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),   \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),   \
        "+f"(d[30]), "+f"(d[31])                                           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

template <>
struct Wgmma<64> {
  template <bool kBf16>
  static __device__ void Add(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                             int keep) {
    if constexpr (kBf16) {
      ECPHORY_WGMMA_64("bf16");
    } else {
      ECPHORY_WGMMA_64("f16");
    }
  }
};

#define ECPHORY_WGMMA_80(TYPE)                                             \
  asm volatile(                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %45, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPE "." TYPE          \
      " "                                                                  \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "  \
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, "      \
      "{%40, %41, %42, %43}, %44, p, 1, 1, 0;\n}\n"                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),        \
        "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),        \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),   \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),   \
        "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),   \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),   \
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),   \
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

template <>
struct Wgmma<80> {
  template <bool kBf16>
  static __device__ void Add(float (&d)[40], const uint32_t (&a)[4], uint64_t b,
                             int keep) {
    if constexpr (kBf16) {
      ECPHORY_WGMMA_80("bf16");
    } else {
      ECPHORY_WGMMA_80("f16");
    }
  }
};

#define ECPHORY_WGMMA_96(TYPE)                                             \
  asm volatile(                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE          \
      " "                                                                  \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "  \
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "  \
      "%41, %42, %43, %44, %45, %46, %47}, "                               \
      "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n}\n"                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),        \
        "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),        \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),   \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),   \
        "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),   \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),   \
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),   \
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),   \
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]),   \
        "+f"(d[45]), "+f"(d[46]), "+f"(d[47])                              \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

template <>
struct Wgmma<96> {
  template <bool kBf16>
  static __device__ void Add(float (&d)[48], const uint32_t (&a)[4], uint64_t b,
                             int keep) {
    if constexpr (kBf16) {
      ECPHORY_WGMMA_96("bf16");
    } else {
      ECPHORY_WGMMA_96("f16");
    }
  }
};

#define ECPHORY_WGMMA_128(TYPE)                                            \
  asm volatile(                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE         \
      " "                                                                  \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "  \
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "  \
      "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "  \
      "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                \
      "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}\n"                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),        \
        "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),        \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),   \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),   \
        "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),   \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),   \
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),   \
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),   \
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]),   \
        "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),   \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),   \
        "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),   \
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))

template <>
struct Wgmma<128> {
  template <bool kBf16>
  static __device__ void Add(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                             int keep) {
    if constexpr (kBf16) {
      ECPHORY_WGMMA_128("bf16");
    } else {
      ECPHORY_WGMMA_128("f16");
    }
  }
  // The same of bf16, all of it in shared memory: rows of a (SwizzledRows())
  // and columns of b (SwizzledColumns()).
  static __device__ void AddColumns(float (&d)[64], uint64_t a, uint64_t b,
                                    int keep) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
        "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
        "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, "
        "1, 0, 1;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),
          "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
          "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
          "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]),
          "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
          "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(keep));
  }
};

// Registers that the products begun next read or add to are as they are now.
__device__ inline void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Products so far form a group; groups end in order.
__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All but the kPending latest groups have ended.
template <int kPending>
__device__ inline void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving values in or out of registers across it.
template <int kCount>
__device__ inline void Hold(uint32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}
template <int kCount>
__device__ inline void Hold(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// Rows of 128 bytes in shared memory at a multiple of 1024, of which row n has
// its unit u of 16 bytes at unit u ^ n % 8. Columns further on by 16 values of
// 16 bits: 2 more.
__device__ inline uint64_t SwizzledRows(uint32_t shared) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | uint64_t{1} << 16 | shared >> 4;
}

// The same memory as the columns of a product: 16 rows of it by kN channels,
// of which each 64 lie `stride` bytes after those before.
__device__ inline uint64_t SwizzledColumns(uint32_t shared, uint32_t stride) {
  return SwizzledRows(shared) - (uint64_t{1} << 16) +
         (static_cast<uint64_t>(stride >> 4) << 16);
}

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Four matrices of 8 rows of 16 bytes: lane l gives the address of row l % 8 of
// matrix l / 8, and gets word l % 4 of row l / 4 of each.
__device__ inline void LoadMatrices(uint32_t shared, uint32_t (&out)[4]) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
      : "r"(shared)
      : "memory");
}

// Barriers in shared memory: a phase ends when `count` have arrived. Waiting
// for phase number n takes its parity.
__device__ inline void InitBarrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(count)
               : "memory");
}
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
// Once the thread's copies so far are there (CopyAsync()).
__device__ inline void ArriveAfterCopies(uint32_t barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
      : "memory");
}
__device__ inline void WaitForPhase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// What others have written to shared memory, and this thread has waited for, is
// seen by the products that it begins next.
__device__ inline void ShowToProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// 16 bytes like CopyAsync(), or as many zeros.
__device__ inline void CopyAsyncOrZero(uint32_t shared, const void* global,
                                       bool copy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
      "l"(global), "r"(copy ? 16 : 0)
      : "memory");
}

// Arrives, and lets the phase end no sooner than so many bytes have arrived as
// well.
__device__ inline void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
// A box of an array (ops/cuda/box_map.cuh), from [y][x] or [z][y][x] on, to
// shared memory; its bytes arrive at the barrier.
__device__ inline void CopyBox(uint32_t shared, const CUtensorMap& map, int x,
                               int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ inline void CopyBox(uint32_t shared, const CUtensorMap& map, int x,
                               int y, int z, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
// A barrier of `kThreads` threads of the block.
template <int kBarrier, int kThreads>
__device__ inline void SynchronizeSome() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

// Changes how many registers the warpgroup's threads have.
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace ecphory::cuda
