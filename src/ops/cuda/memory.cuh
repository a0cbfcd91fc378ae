// Device memory that this program takes, counted.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace ecphory::cuda {

// cudaMalloc and cudaFree on the current device, which is `ordinal`.
cudaError_t TakeMemory(int ordinal, size_t bytes, void** memory);
cudaError_t GiveBackMemory(int ordinal, void* memory);
// Bytes taken and not given back, as they were asked for.
uint64_t TakenMemory(int ordinal);

}  // namespace ecphory::cuda
