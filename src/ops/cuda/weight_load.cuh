// What the formats of ops/cuda/weight.cuh share: unaligned loads, pairs of
// small floats, and the shape of a Weight.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/codec.cuh"
#include "tensor/matrix.h"

namespace ecphory::cuda {

// Loads `T` from an address that is a multiple of kAlign only.
template <typename T, size_t kAlign>
__device__ inline T LoadAs(const uint8_t* p) {
  if constexpr (kAlign >= sizeof(T)) {
    return __ldg(reinterpret_cast<const T*>(p));
  } else {
    using Piece =
        std::conditional_t<kAlign >= 4, uint32_t,
                           std::conditional_t<kAlign == 2, uint16_t, uint8_t>>;
    T value;
    Piece* const out = reinterpret_cast<Piece*>(&value);
#pragma unroll
    for (size_t i = 0; i < sizeof(T) / sizeof(Piece); ++i) {
      out[i] = __ldg(reinterpret_cast<const Piece*>(p) + i);
    }
    return value;
  }
}

__device__ inline float2 HalfPair(uint32_t halves) {
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

__device__ inline float2 E4M3Pair(uint16_t codes) {
  const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// Nibbles i and i + 4 of `codes` as e2m1 values times 2^-14: an e2m1 code is a
// half with fewer bits, subnormals included.
__device__ inline float2 E2M1PairScaled(uint32_t codes, int i) {
  const uint32_t nibbles = codes >> (4 * i);
  const uint32_t bits =
      (nibbles << 12 & 0x80008000u) | (nibbles << 9 & 0x0e000e00u);
  return HalfPair(bits);
}

// A Weight reads runs of kRun values; run r holds values [r * kRun, ...) of the
// row. Load() fetches what a run needs, so that many loads can be on their way;
// Decode() gives its values and returns an fp32 factor of the whole run, so
// that value = w[i] * factor exactly.
template <WeightFormat kFormat, size_t kAlign>
struct Weight;

}  // namespace ecphory::cuda
