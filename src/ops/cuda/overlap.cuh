// Kernels that start while the one before them in the stream still runs
// (Hopper's programmatic dependent launch): they fetch what no kernel writes,
// such as weights, and then wait for it. Ordinary launches elsewhere.
#pragma once

#include <cuda_runtime.h>

#include <utility>

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

// A launch that may overlap the kernel before it; `kernel` calls
// WaitForEarlier() in every block.
template <typename... Parameters, typename... Arguments>
void LaunchOverlapped(void (*kernel)(Parameters...), dim3 grid,
                      unsigned threads, size_t shared, const char* where,
                      Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = Current().stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = HasHopperCode() ? 1 : 0;
  Note(cudaLaunchKernelEx(&config, kernel,
                          std::forward<Arguments>(arguments)...),
       where);
}

}  // namespace ecphory::cuda
