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

// Rows of an array are cut into columns of 128 bytes; a box has one or more of
// them. In shared memory its rows of 128 bytes follow each other, column by
// column, and of row r the 16-byte piece p lies at p ^ r % 8, so that pieces of
// a column have banks of their own; the box begins at a multiple of 1024 bytes.
inline constexpr unsigned kBoxBytes = 128;

// Rows [outer, inner], of `bytes` each, a multiple of kBoxBytes, `data` and the
// distances between rows multiples of 16. A box has all outer ones and
// box_inner inner ones. What lies past the last inner one reads as 0, and is
// not written. What fails is noted.
struct RowBoxes {
  const void* data;
  size_t bytes;
  size_t inner, inner_bytes;  // how many, and from one to the next
  size_t outer, outer_bytes;
  unsigned box_inner, box_columns;
};
inline CUtensorMap MapRows(const RowBoxes& a) {
  constexpr size_t kValue = sizeof(uint16_t);
  return MapBoxes<4>(
      {.data = a.data,
       .value_bytes = kValue,
       .sizes = {kBoxBytes / kValue, a.inner, a.outer, a.bytes / kBoxBytes},
       .strides = {a.inner_bytes, a.outer_bytes, kBoxBytes},
       .box = {kBoxBytes / kValue, a.box_inner, static_cast<unsigned>(a.outer),
               a.box_columns}});
}

// Streams [tokens, streams, dim]: rows [stream, token].
inline CUtensorMap MapStreams(const Streams& h, size_t tokens, size_t streams,
                              size_t dim, unsigned box_tokens,
                              unsigned box_columns) {
  const size_t bytes = dim * StreamBytes(h.format);
  return MapRows({.data = h.data,
                  .bytes = bytes,
                  .inner = tokens,
                  .inner_bytes = streams * bytes,
                  .outer = streams,
                  .outer_bytes = bytes,
                  .box_inner = box_tokens,
                  .box_columns = box_columns});
}

#if __CUDA_ARCH__ >= 900

// The box at a column and an inner row to shared memory.
__device__ inline void CopyBox(SharedPlace to, const CUtensorMap& map,
                               unsigned column, unsigned inner,
                               SharedPlace barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3, %2, %4}], [%5];" ::"r"(to.at),
      "l"(&map), "r"(0), "r"(inner), "r"(column), "r"(barrier.at)
      : "memory");
}

// The other way. Such copies are read from shared memory and written in groups,
// which the thread that asked for them waits for; what other threads have
// stored there goes before them by FenceAsyncProxy() and a barrier.
__device__ inline void WriteBox(const CUtensorMap& map, unsigned column,
                                unsigned inner, SharedPlace from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
      "[%0, {%1, %2, %1, %3}], [%4];" ::"l"(&map),
      "r"(0), "r"(inner), "r"(column), "r"(from.at)
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

#endif

}  // namespace ecphory::cuda
