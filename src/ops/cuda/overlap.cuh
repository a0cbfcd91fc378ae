// Kernels that start while the one before them in the stream still runs: they
// fetch what no kernel writes, such as weights, and then wait for it.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// Lets the next kernel of the stream start, where it was launched to do so.
__device__ inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Every thread calls it before it reads what kernels have written or writes
// anything to device memory: what came before in the stream has then ended.
__device__ inline void WaitForEarlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether a kernel was compiled with WaitForEarlier() in it.
template <auto kKernel>
bool CanOverlap() {
  static const bool can = [] {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(
        &attributes, reinterpret_cast<const void*>(kKernel));
    return error == cudaSuccess && attributes.ptxVersion >= 90;
  }();
  return can;
}

// A launch that may overlap the kernel before it, where the device can;
// kKernel calls WaitForEarlier().
template <auto kKernel, typename... Args>
void LaunchOverlapped(dim3 grid, unsigned threads, size_t shared,
                      const char* where, const Args&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = Current().stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = CanOverlap<kKernel>() ? 1 : 0;
  Note(cudaLaunchKernelEx(&config, kKernel, args...), where);
}

}  // namespace ecphory::cuda
