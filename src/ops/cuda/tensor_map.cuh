// Arrays as the copy engine of compute capability 9.0 sees them: boxes of them
// come to shared memory by one instruction.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// A box is 128 bytes wide. In shared memory its rows follow each other, and of
// row r the 16-byte piece p lies at p ^ r % 8, so that pieces of a column have
// banks of their own; the box begins at a multiple of 1024 bytes.
inline constexpr unsigned kBoxBytes = 128;

// bf16 streams [tokens, streams, dim], aligned to 16 bytes, in boxes of all
// streams of `box_tokens`: rows [stream, token]. Tokens past the end read as 0.
// What fails is noted.
inline CUtensorMap MapStreams(const void* data, size_t tokens, size_t streams,
                              size_t dim, unsigned box_tokens) {
  CUtensorMap map{};
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  Note(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                        cudaEnableDefault, &found),
       "tensor map");
#else
  Note(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry,
                               cudaEnableDefault, &found),
       "tensor map");
#endif
  if (entry == nullptr) return map;
  constexpr size_t kValue = sizeof(uint16_t);
  const cuuint64_t sizes[] = {dim, tokens, streams};
  const cuuint64_t strides[] = {streams * dim * kValue, dim * kValue};
  const cuuint32_t box[] = {kBoxBytes / kValue, box_tokens,
                            static_cast<cuuint32_t>(streams)};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
      entry)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data),
             sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) Note(cudaErrorInvalidValue, "tensor map");
  return map;
}

#if __CUDA_ARCH__ >= 900

// The box of some tokens at a channel to shared memory.
__device__ inline void CopyBox(void* shared, const CUtensorMap& map,
                               unsigned channel, unsigned token,
                               uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          SharedAddress(shared)),
      "l"(&map), "r"(channel), "r"(token), "r"(0), "r"(SharedAddress(barrier))
      : "memory");
}

#endif

}  // namespace ecphory::cuda
