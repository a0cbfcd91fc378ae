// Kernels that are launched before the one ahead of them has ended (Hopper's
// programmatic dependent launch): what does not depend on it, such as loading
// weights, runs beside its tail. On older devices an ordinary launch.
#pragma once

#include <utility>

#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// Waits until the kernel ahead has ended and its writes are there. Every block
// of a kernel launched by LaunchDependent calls it before it ends, and before
// it touches anything that another kernel writes or reads.
__device__ inline void WaitForKernelAhead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on the kernel behind may be launched.
__device__ inline void LetKernelBehindStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename... Parameters, typename... Arguments>
void LaunchDependent(const char* name, void (*kernel)(Parameters...), dim3 grid,
                     unsigned threads, Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = Current().stream;
  config.attrs = &attribute;
  config.numAttrs = Current().compute_major >= 9 ? 1 : 0;
  Note(cudaLaunchKernelEx(&config, kernel,
                          std::forward<Arguments>(arguments)...),
       name);
}

}  // namespace ecphory::cuda
