// How much shared memory a block may ask for: 227 KiB on Hopper, 99 to 163 on
// others.
#pragma once

#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// On the current device.
inline bool FitsSharedMemory(size_t bytes) {
  int device = 0, most = 0;
  Note(cudaGetDevice(&device), "shared memory");
  Note(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                              device),
       "shared memory");
  return bytes <= static_cast<size_t>(most);
}

// Lets a kernel have so much of it. What it was once given it keeps: another
// thread may be about to launch it.
void AllowSharedMemory(const void* kernel, size_t bytes, const char* where);
template <typename... Parameters>
void AllowSharedMemory(void (*kernel)(Parameters...), size_t bytes,
                       const char* where) {
  AllowSharedMemory(reinterpret_cast<const void*>(kernel), bytes, where);
}

}  // namespace ecphory::cuda
