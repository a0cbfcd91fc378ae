// Arrays of which the copy engine of compute capability 9.0 brings boxes to
// shared memory, each by one instruction (CopyBox(), ops/cuda/wgmma.cuh).
#pragma once

#include <cuda.h>

#include <cstddef>

#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// Values of kBytes bytes, 1 or 2. What lies outside of the array reads as 0,
// and its bytes arrive too. Addresses and strides are multiples of 16 bytes.
// Rows of a box of 128 or 64 bytes are swizzled (SwizzledRows(), the 128) so
// that of row r unit u of 16 bytes lies at u ^ r % 8, or at u ^ r / 2 % 4.
template <int kDims>
struct BoxMap {
  const void* data;
  size_t value_bytes;
  size_t sizes[kDims];        // values, the innermost dimension first
  size_t strides[kDims - 1];  // bytes between neighbours, of all but that one
  unsigned box[kDims];        // values; the first as many as 128 or 64 bytes
};

// The driver's function, which is not linked: null where there is none, which
// is noted.
inline decltype(&cuTensorMapEncodeTiled) TensorMapEncoder() {
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
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

// What fails is noted.
template <int kDims>
CUtensorMap MapBoxes(const BoxMap<kDims>& array) {
  CUtensorMap map{};
  const auto encode = TensorMapEncoder();
  if (encode == nullptr) return map;
  cuuint64_t sizes[kDims], strides[kDims];
  cuuint32_t box[kDims], steps[kDims];
  for (int i = 0; i < kDims; ++i) {
    sizes[i] = array.sizes[i], box[i] = array.box[i], steps[i] = 1;
    if (i > 0) strides[i - 1] = array.strides[i - 1];
  }
  const bool wide = array.box[0] * array.value_bytes == 128;
  const CUresult result = encode(
      &map,
      array.value_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                             : CU_TENSOR_MAP_DATA_TYPE_UINT16,
      kDims, const_cast<void*>(array.data), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) Note(cudaErrorInvalidValue, "tensor map");
  return map;
}

}  // namespace ecphory::cuda
