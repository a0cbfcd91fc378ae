// Hopper's products of a warpgroup (wgmma), and what some warps fetch for them
// while others multiply. Compiled for compute capability 9.0a only; what
// calls this is guarded by ECPHORY_WGMMA.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/mbarrier.cuh"

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

// The sums of a product as its text names them, and themselves.
#define ECPHORY_NAMES_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ECPHORY_NAMES_32                                                \
  ECPHORY_NAMES_16                                                      \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
  "%29, %30, %31"
#define ECPHORY_NAMES_40 \
  ECPHORY_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ECPHORY_NAMES_48 \
  ECPHORY_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ECPHORY_NAMES_64                                                \
  ECPHORY_NAMES_48                                                      \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, " \
  "%61, %62, %63"
#define ECPHORY_SUMS_8(i)                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
      "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define ECPHORY_SUMS_16 ECPHORY_SUMS_8(0), ECPHORY_SUMS_8(8)
#define ECPHORY_SUMS_32 ECPHORY_SUMS_16, ECPHORY_SUMS_8(16), ECPHORY_SUMS_8(24)
#define ECPHORY_SUMS_40 ECPHORY_SUMS_32, ECPHORY_SUMS_8(32)
#define ECPHORY_SUMS_48 ECPHORY_SUMS_40, ECPHORY_SUMS_8(40)
#define ECPHORY_SUMS_64 ECPHORY_SUMS_48, ECPHORY_SUMS_8(48), ECPHORY_SUMS_8(56)

// The product of `width` columns, which has `count` sums a thread. `operands`
// and `keep` are text; what they name follows.
#define ECPHORY_WGMMA_TEXT(width, count, type, operands, keep, ...)        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " keep                    \
               ", 0;\n"                                                    \
               "wgmma.mma_async.sync.aligned.m64n" #width "k16.f32." type  \
               "." type " {" ECPHORY_NAMES_##count "}, " operands ";\n}\n" \
               : ECPHORY_SUMS_##count                                      \
               : __VA_ARGS__)

#define ECPHORY_WGMMA_OF(width, count, operands, keep_name)               \
  template <>                                                             \
  struct Wgmma<width> {                                                   \
    template <bool kBf16>                                                 \
    static __device__ void Add(float (&d)[count], const uint32_t (&a)[4], \
                               uint64_t b, int keep) {                    \
      if constexpr (kBf16) {                                              \
        ECPHORY_WGMMA_TEXT(width, count, "bf16", operands ", p, 1, 1, 0", \
                           keep_name, "r"(a[0]), "r"(a[1]), "r"(a[2]),    \
                           "r"(a[3]), "l"(b), "r"(keep));                 \
      } else {                                                            \
        ECPHORY_WGMMA_TEXT(width, count, "f16", operands ", p, 1, 1, 0",  \
                           keep_name, "r"(a[0]), "r"(a[1]), "r"(a[2]),    \
                           "r"(a[3]), "l"(b), "r"(keep));                 \
      }                                                                   \
    }                                                                     \
  }

ECPHORY_WGMMA_OF(32, 16, "{%16, %17, %18, %19}, %20", "%21");
ECPHORY_WGMMA_OF(64, 32, "{%32, %33, %34, %35}, %36", "%37");
ECPHORY_WGMMA_OF(80, 40, "{%40, %41, %42, %43}, %44", "%45");
ECPHORY_WGMMA_OF(96, 48, "{%48, %49, %50, %51}, %52", "%53");
ECPHORY_WGMMA_OF(128, 64, "{%64, %65, %66, %67}, %68", "%69");

// The same of 128 columns of bf16, all of it in shared memory: rows of a
// (SwizzledRows()) and columns of b (SwizzledColumns()).
__device__ inline void AddColumns(float (&d)[64], uint64_t a, uint64_t b,
                                  int keep) {
  ECPHORY_WGMMA_TEXT(128, 64, "bf16", "%64, %65, p, 1, 1, 0, 1", "%66", "l"(a),
                     "l"(b), "r"(keep));
}

#undef ECPHORY_WGMMA_OF
#undef ECPHORY_WGMMA_TEXT
#undef ECPHORY_SUMS_64
#undef ECPHORY_SUMS_48
#undef ECPHORY_SUMS_40
#undef ECPHORY_SUMS_32
#undef ECPHORY_SUMS_16
#undef ECPHORY_SUMS_8
#undef ECPHORY_NAMES_64
#undef ECPHORY_NAMES_48
#undef ECPHORY_NAMES_40
#undef ECPHORY_NAMES_32
#undef ECPHORY_NAMES_16

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

// 16 bytes like CopyAsync(), or as many zeros.
__device__ inline void CopyAsyncOrZero(SharedPlace to, const void* global,
                                       bool copy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to.at),
      "l"(global), "r"(copy ? 16 : 0)
      : "memory");
}

// A box of an array (ops/cuda/box_map.cuh), from [y][x] or [z][y][x] on, to
// shared memory; its bytes arrive at the barrier.
__device__ inline void CopyBox(SharedPlace to, const CUtensorMap& map, int x,
                               int y, SharedPlace barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to.at),
      "l"(&map), "r"(x), "r"(y), "r"(barrier.at)
      : "memory");
}
__device__ inline void CopyBox(SharedPlace to, const CUtensorMap& map, int x,
                               int y, int z, SharedPlace barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to.at),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier.at)
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
