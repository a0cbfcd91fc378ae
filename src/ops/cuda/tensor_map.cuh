// Arrays as the copy engine of compute capability 9.0 sees them: boxes of them
// come to shared memory by one instruction.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/box_map.cuh"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/residual_streams.h"

namespace ecphory::cuda {

// A box is 128 bytes wide. In shared memory its rows follow each other, and of
// row r the 16-byte piece p lies at p ^ r % 8, so that pieces of a column have
// banks of their own; the box begins at a multiple of 1024 bytes.
inline constexpr unsigned kBoxBytes = 128;

// Streams [tokens, streams, dim], aligned to 16 bytes, in boxes of all streams
// of `box_tokens`: rows [stream, token]. Tokens past the end read as 0, and are
// not written. What fails is noted.
inline CUtensorMap MapStreams(const Streams& h, size_t tokens, size_t streams,
                              size_t dim, unsigned box_tokens) {
  CUtensorMap map{};
  const auto encode = TensorMapEncoder();
  if (encode == nullptr) return map;
  const size_t value = StreamBytes(h.format);
  const cuuint64_t sizes[] = {dim, tokens, streams};
  const cuuint64_t strides[] = {streams * dim * value, dim * value};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kBoxBytes / value),
                            box_tokens, static_cast<cuuint32_t>(streams)};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUresult result = encode(
      &map,
      h.is_bf16() ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
      3, h.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
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

// The other way. Such copies are read from shared memory and written in groups,
// which the thread that asked for them waits for; what other threads have
// stored there goes before them by FenceForCopies() and a barrier.
__device__ inline void WriteBox(const CUtensorMap& map, unsigned channel,
                                unsigned token, const void* shared) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
      "[%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(channel), "r"(token), "r"(0), "r"(SharedAddress(shared))
      : "memory");
}
__device__ inline void CommitWrites() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void WaitUntilWritesRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void WaitForWrites() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ inline void FenceForCopies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

}  // namespace ecphory::cuda
