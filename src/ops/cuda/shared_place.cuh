// Places in shared memory as instructions name them.
#pragma once

#include <cstdint>

namespace ecphory::cuda {

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// A pointer into shared memory, or its address there.
struct SharedPlace {
  __device__ SharedPlace(const void* shared) : at(SharedAddress(shared)) {}
  __device__ SharedPlace(uint32_t address) : at(address) {}
  uint32_t at;
};

// Four matrices of 8 rows of 16 bytes, aligned to 16: lane l names row l % 8 of
// matrix l / 8, and gets word l % 4 of row l / 4 of each.
__device__ inline void LoadMatrices(uint32_t (&to)[4], SharedPlace row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row.at)
               : "memory");
}
// The same, each of 8 x 8 values of 16 bits, transposed.
__device__ inline void LoadTransposed(uint32_t (&to)[4], SharedPlace row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(row.at)
      : "memory");
}

}  // namespace ecphory::cuda
