// Barriers in shared memory that count arrivals and bytes, and the copies that
// arrive at them, on compute capability 9.0 and later.
#pragma once

#include <cstdint>

namespace ecphory::cuda {

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

#if __CUDA_ARCH__ >= 900

// Phases of the barrier end with so many arrivals. By one thread, followed by
// FenceBarriers() and a synchronisation of all that use it.
__device__ inline void InitBarrier(uint64_t* barrier, unsigned arrivals) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(arrivals)
      : "memory");
}
__device__ inline void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Waits for the end of a phase, of which the first has parity 0.
__device__ inline void WaitBarrier(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra again;\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}
// The same, where other blocks of the cluster have sent something.
__device__ inline void WaitForCluster(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%0], "
      "%1;\n"
      "@!there bra again;\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

__device__ inline void ArriveAt(uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
      : "memory");
}
// The phase ends no sooner than so many bytes have arrived as well.
__device__ inline void ArriveExpecting(uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

// From device to shared memory; addresses and bytes are multiples of 16.
__device__ inline void CopyBulk(void* shared, const void* global,
                                unsigned bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// Four tiles of 8 x 8 bf16 from shared memory: the rows of tile i are where
// lanes 8i ... point to, and lane 4r + c gets the pair c of row r of each.
__device__ inline void LoadTiles(const void* row, uint32_t (&tiles)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// The same place in the shared memory of another block of the cluster.
__device__ inline uint32_t PlaceIn(unsigned rank, const void* shared) {
  uint32_t place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"(SharedAddress(shared)), "r"(rank));
  return place;
}
// Puts a value into another block's shared memory; its bytes arrive at a
// barrier there. Both by PlaceIn().
__device__ inline void SendTo(uint32_t place, float4 v, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[%0], {%1,%2,%3,%4}, [%5];" ::"r"(place),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}

__device__ inline void SendTo(uint32_t place, float v, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 "
      "[%0], %1, [%2];" ::"r"(place),
      "f"(v), "r"(barrier)
      : "memory");
}

#endif

}  // namespace ecphory::cuda
