// Streams of either format on the device, and expand and collapse of one
// channel, for any H.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/codec.cuh"
#include "ops/hyper_connection.h"

namespace ecphory::cuda {

// Kernels take the type of the streams' values: float, or uint16_t for bf16.
template <typename T>
inline constexpr bool kBf16 = std::is_same_v<T, uint16_t>;

// Calls body(T()) with it.
template <typename Body>
void WithStreamType(StreamFormat format, const Body& body) {
  format == StreamFormat::kBF16 ? body(uint16_t{}) : body(float{});
}

template <typename T>
__device__ inline T* ValuesOf(const Streams& h) {
  return static_cast<T*>(h.data);
}
template <typename T>
__device__ inline const T* ValuesOf(const ConstStreams& h) {
  return static_cast<const T*>(h.data);
}

// What such streams take a value for.
template <typename T>
__device__ inline float RoundedFor(float x) {
  return kBf16<T> ? RoundToBF16(x) : x;
}

__device__ inline float GetStream(const float* h) { return *h; }
__device__ inline float GetStream(const uint16_t* h) { return BF16ToF32(*h); }
__device__ inline void SetStream(float* h, float x) { *h = x; }
__device__ inline void SetStream(uint16_t* h, float x) {
  *h = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

// Four values at a time, of memory aligned to as many. Stored ones are rounded.
__device__ inline float4 Load(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ inline float4 Widened(uint2 v) {
  return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
          __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u)};
}
__device__ inline float4 Load(const uint16_t* p) {
  return Widened(*reinterpret_cast<const uint2*>(p));
}
__device__ inline void Store(float* p, float4 v) {
  *reinterpret_cast<float4*>(p) = v;
}
__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint2 Packed(float4 v) {
  return {PackBf16(v.x, v.y), PackBf16(v.z, v.w)};
}
__device__ inline void Store(uint16_t* p, float4 v) {
  *reinterpret_cast<uint2*>(p) = Packed(v);
}
// By pairs, which is faster than one by one.
template <typename T>
__device__ inline float4 RoundedFor(float4 v) {
  if constexpr (kBf16<T>) return Widened(Packed(v));
  return v;
}

// h[k] of one channel, in place; streams <= kMaxStreams.
template <typename T>
__device__ inline void ExpandChannel(const float* post, const float* comb,
                                     float y, size_t streams, float* h) {
  float old[kMaxStreams];
  y = RoundedFor<T>(y);
  for (size_t j = 0; j < streams; ++j) old[j] = h[j];
  for (size_t k = 0; k < streams; ++k) {
    float sum = post[k] * y;
    for (size_t j = 0; j < streams; ++j) {
      sum = fmaf(comb[j * streams + k], old[j], sum);
    }
    h[k] = RoundedFor<T>(sum);
  }
}

// One channel of the collapse; `column` points at it in stream 0.
template <typename T>
__device__ float Collapsed(const float* pre, const T* column, size_t streams,
                           size_t dim) {
  float x = pre[0] * GetStream(column);
  for (size_t s = 1; s < streams; ++s) {
    x = fmaf(pre[s], GetStream(column + s * dim), x);
  }
  return RoundedFor<T>(x);
}

}  // namespace ecphory::cuda
