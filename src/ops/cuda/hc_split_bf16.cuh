// A split's arithmetic for H = 4 on bf16 streams, in pairs of slabs of 16
// channels that one warp takes for up to 16 tokens.
//
// bf16 streams go to the tensor cores as they are; fn goes as two bf16 parts
// that leave 2^-18 of a term. However tokens are grouped into launches, the
// sums of a token are made in one order: D is cut into kWideParts parts, in
// which even and odd pairs of slabs are added up one by one, and then both;
// then the parts are added. Where D ends with half a pair, zeros stand for the
// rest.
#pragma once

#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/mma.cuh"

namespace ecphory::cuda::four {

// A lane's four channels of a slab, 2 * column, + 1 and those 8 further on, as
// tensor cores take them; `p` points at the first, `q` at the third.
__device__ inline float4 LoadLane(const float* p, const float* q) {
  const float2 a = *reinterpret_cast<const float2*>(p);
  const float2 b = *reinterpret_cast<const float2*>(q);
  return {a.x, a.y, b.x, b.y};
}
__device__ inline float4 LoadLane(const uint16_t* p, const uint16_t* q) {
  return Widened({*reinterpret_cast<const uint32_t*>(p),
                  *reinterpret_cast<const uint32_t*>(q)});
}
__device__ inline float4 LoadLane(const __nv_bfloat16* p,
                                  const __nv_bfloat16* q) {
  return LoadLane(reinterpret_cast<const uint16_t*>(p),
                  reinterpret_cast<const uint16_t*>(q));
}
__device__ inline float4 LoadLane(const __half* p, const __half* q) {
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(p));
  const float2 b = __half22float2(*reinterpret_cast<const __half2*>(q));
  return {a.x, a.y, b.x, b.y};
}
template <typename T>
__device__ inline float4 LoadLane(const T* p) {
  return LoadLane(p, p + 8);
}
__device__ inline void StoreLane(float* p, float4 v) {
  *reinterpret_cast<float2*>(p) = {v.x, v.y};
  *reinterpret_cast<float2*>(p + 8) = {v.z, v.w};
}
__device__ inline void StoreLane(uint16_t* p, uint2 v) {
  *reinterpret_cast<uint32_t*>(p) = v.x;
  *reinterpret_cast<uint32_t*>(p + 8) = v.y;
}

// fn of a slab: a lane's channels of outputs 8n + row, as pairs.
struct SlabFn {
  uint32_t high[kStreams][3][2];
  uint32_t low[kStreams][3][2];

  template <typename Fn>
  __device__ void Load(const Matrix& fn, size_t dim, const Lane& lane,
                       size_t slab) {
    const Fn* const first = reinterpret_cast<const Fn*>(fn.data) +
                            (fn.first_row + lane.row) * fn.cols + slab * kSlab +
                            2 * lane.column;
    Load(first, first + 8, 8 * fn.cols, dim);
  }
  // From the lane's first and third channels of output `row` in stream 0, with
  // so much between outputs 8n + row and between streams.
  template <typename Fn>
  __device__ void Load(const Fn* first, const Fn* third, size_t outputs,
                       size_t streams) {
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        const size_t at = n * outputs + s * streams;
        const float4 w = LoadLane(first + at, third + at);
        Split(w.x, w.y, &high[s][n][0], &low[s][n][0]);
        Split(w.z, w.w, &high[s][n][1], &low[s][n][1]);
      }
    }
  }

 private:
  static __device__ void Split(float a, float b, uint32_t* high,
                               uint32_t* low) {
    *high = PackBf16(a, b);
    *low = PackBf16(a - __uint_as_float(*high << 16),
                    b - __uint_as_float(*high & 0xffff0000u));
  }
};

// A lane's channels of a slab in each stream: the first pair of its two tokens,
// then the second of both.
using LaneStreams = uint32_t[kStreams][4];

// A lane's share of the sums of a pair of slabs: outputs 8n + 2 * column, + 1
// of its tokens, of both or of the first alone, and their sums of squares,
// which all lanes of a token have.
template <int kOfLane = 2>
struct PairSums {
  float2 products[3][kOfLane];
  float h2[kOfLane] = {};
  float x2[kOfLane] = {};

  // `load(slab, h)` gives the streams, `store(slab, i, x)` takes the channels
  // of the collapsed token i.
  template <typename Load, typename Store>
  __device__ void Of(const SlabFn (&fn)[2], const float4 (&pre)[kOfLane],
                     const Load& load, const Store& store) {
    float high[3][4] = {}, low[3][4] = {};
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      LaneStreams h;
      load(slab, h);
      Multiply(fn[slab], h, high, low);
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        float4 streams[kStreams];
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
          streams[s] = Widened({h[s][i], h[s][i + 2]});
        }
        Coefficients c;
        c.pre = pre[i];
        store(slab, i,
              Packed(TokenSlab<uint16_t, false>(c, float4{}, streams, &h2[i],
                                                &x2[i])));
      }
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        products[n][i] = {high[n][2 * i] + low[n][2 * i],
                          high[n][2 * i + 1] + low[n][2 * i + 1]};
      }
      h2[i] = AddLanes(h2[i]), x2[i] = AddLanes(x2[i]);
    }
  }
  // Those of token i: outputs, squares, nothing.
  __device__ void Put(const Lane& lane, int i, float* sums) const {
    float2* const pairs = reinterpret_cast<float2*>(sums) + lane.column;
#pragma unroll
    for (int n = 0; n < 3; ++n) pairs[4 * n] = products[n][i];
    if (lane.column == 0) pairs[kSquares / 2] = {h2[i], x2[i]};
    if (lane.column == 1) pairs[kSquares / 2] = {0, 0};
  }

 private:
  // Products that go to one sum follow each other at a distance, or each would
  // wait for the last.
  static __device__ void Multiply(const SlabFn& fn, const LaneStreams& h,
                                  float (&high)[3][4], float (&low)[3][4]) {
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      const auto multiply = [&](float(&sums)[4], const uint32_t(&w)[2]) {
        Mma<true>(sums, h[s][0], h[s][1], h[s][2], h[s][3], w[0], w[1]);
      };
#pragma unroll
      for (int n = 0; n < 3; ++n) multiply(high[n], fn.high[s][n]);
#pragma unroll
      for (int n = 0; n < 3; ++n) multiply(low[n], fn.low[s][n]);
    }
  }
};

}  // namespace ecphory::cuda::four
