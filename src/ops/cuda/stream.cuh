// What the kernels' files share: the current stream, launch checks, scratch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/stream.h"

namespace ecphory::cuda {

struct Stream::Handles {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  int code_version = 0;
  bool wgmma_code = false;
  cudaError_t error = cudaSuccess;  // the first one since Synchronize
  const char* where = "";           // who met it
  struct Buffer {
    void* data = nullptr;
    size_t bytes = 0;
  };
  std::map<const void*, Buffer> scratch;  // by purpose
  std::vector<void*> retired;    // scratch that grew, until Synchronize
  uint64_t scratch_changes = 0;  // how often any of it moved
  // Set while scratch is only noted, by purpose (scratch_plan.h).
  std::map<const void*, size_t>* rehearsed = nullptr;
};

// The handles of the stream this thread has entered. Operators are never called
// without one.
Stream::Handles& Current();

// Remembers the first failure; `where` is a literal.
void Note(cudaError_t error, const char* where);
// After a launch.
inline void NoteLaunch(const char* kernel) { Note(cudaGetLastError(), kernel); }

// At least `bytes` of device memory that belong to the stream and to `purpose`,
// the address of anything unique. Grows, never shrinks; null when there is
// none left, which is noted.
void* ScratchBytes(const void* purpose, size_t bytes);
template <typename Purpose, typename T = float>
T* Scratch(size_t count) {
  static const char purpose = 0;
  return static_cast<T*>(ScratchBytes(&purpose, count * sizeof(T)));
}

inline int Multiprocessors() { return Current().multiprocessors; }

// Whether kernels were compiled for compute capability 9.0 or later. Not what
// the device is: one that runs code translated from older PTX has none of what
// stands behind __CUDA_ARCH__ >= 900.
inline bool HasHopperCode() { return Current().code_version >= 90; }
// Whether they were compiled for 9.0a, which has products of warpgroups.
inline bool HasWgmmaCode() { return Current().wgmma_code; }

inline unsigned Blocks(size_t items, size_t per_block) {
  return static_cast<unsigned>(CeilDiv(items, per_block));
}

// Threads of a warp, and the sum of one value from each, in every lane.
inline constexpr unsigned kWarp = 32;
__device__ inline float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}
__device__ inline float WarpMax(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

}  // namespace ecphory::cuda
