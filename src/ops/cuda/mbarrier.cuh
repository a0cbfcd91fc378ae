// Barriers in shared memory that count arrivals and bytes, and the copies that
// arrive at them: called on compute capability 9.0 and later alone.
#pragma once

#include <cstdint>

#include "ops/cuda/shared_place.cuh"

namespace ecphory::cuda {

// Phases of the barrier end with so many arrivals. By one thread, followed by
// FenceBarriers() or FenceAsyncProxy() and a synchronisation of all that use
// it.
__device__ inline void InitBarrier(SharedPlace barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.at),
               "r"(arrivals)
               : "memory");
}
// So that other blocks of the cluster, and copies, find it made.
__device__ inline void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// What others have written to shared memory, and this thread has waited for, is
// seen by the products of warpgroups and the bulk copies that begin next.
__device__ inline void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits for the end of a phase, of which the first has parity 0.
__device__ inline void WaitForPhase(SharedPlace barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra again;\n"
      "}\n" ::"r"(barrier.at),
      "r"(parity)
      : "memory");
}
// The same, where other blocks of the cluster have sent something.
__device__ inline void WaitForCluster(SharedPlace barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%0], "
      "%1;\n"
      "@!there bra again;\n"
      "}\n" ::"r"(barrier.at),
      "r"(parity)
      : "memory");
}

__device__ inline void Arrive(SharedPlace barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.at)
               : "memory");
}
// By the lanes of a warp, which count as one.
__device__ inline void ArriveAsOne(SharedPlace barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) Arrive(barrier);
}
// The phase ends no sooner than so many bytes have arrived as well.
__device__ inline void ArriveExpecting(SharedPlace barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   barrier.at),
               "r"(bytes)
               : "memory");
}
// Once the thread's copies so far are there (CopyAsync()).
__device__ inline void ArriveAfterCopies(SharedPlace barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier.at)
      : "memory");
}

// From device to shared memory; addresses and bytes are multiples of 16. The
// bytes arrive at the barrier.
__device__ inline void CopyBulk(SharedPlace to, const void* global,
                                unsigned bytes, SharedPlace barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(to.at),
      "l"(global), "r"(bytes), "r"(barrier.at)
      : "memory");
}

// The same place in the shared memory of another block of the cluster.
__device__ inline uint32_t PlaceIn(unsigned rank, SharedPlace shared) {
  uint32_t place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"(shared.at), "r"(rank));
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

}  // namespace ecphory::cuda
