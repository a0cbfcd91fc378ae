// A split's arithmetic for H = 4, in pieces ("slabs") of 16 channels that one
// warp takes for up to 16 tokens.
//
// The 24 products of fn go through the tensor cores as three tf32 products,
// high x high + low x high + high x low, which leaves an error of 2^-21 of a
// term. A lane holds the channels of its tokens in all four streams, so that
// expand, collapse and sums of squares need no other lane. However tokens are
// grouped into launches, the sums of a token are made in one order, and its
// bits do not depend on its neighbours: the sums of two slabs, a pair, are
// added; D is cut into kWideParts parts, in which even and odd pairs are added
// up one by one, and then both; then the parts are added.
#pragma once

#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/streams.cuh"
#include "ops/hyper_connection.h"

namespace ecphory::cuda::four {

inline constexpr int kStreams = 4;
inline constexpr int kOutputs = (2 + kStreams) * kStreams;
inline constexpr int kTokens = 16;  // rows of a matrix instruction
inline constexpr int kSlab = 16;    // channels, 4 a lane
inline constexpr size_t kMaxFewDim = 8192;
inline constexpr unsigned kWideParts = 16;
inline constexpr unsigned kPair = 2 * kSlab;

// The sums of a token: m of fn, sum h^2, sum x^2 (x the collapsed vector).
inline constexpr int kSquares = kOutputs, kCollapsed = kOutputs + 1;
inline constexpr int kSums = 28;  // padded to whole float4

// A lane works for two tokens of a tile, `row` and `row + 8`, and on channels
// 4 * column ... + 3 of a slab.
struct Lane {
  __device__ Lane()
      : row(threadIdx.x % kWarp / 4), column(threadIdx.x % kWarp % 4) {}
  unsigned row, column;
};

// Four values of fn, which no kernel writes.
__device__ inline float4 LoadFn(const float* p) {
  return __ldg(reinterpret_cast<const float4*>(p));
}
__device__ inline float4 LoadFn(const __half* p) {
  const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&v.x));
  const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&v.y));
  return {a.x, a.y, b.x, b.y};
}
__device__ inline float4 LoadFn(const __nv_bfloat16* p) {
  return Widened(__ldg(reinterpret_cast<const uint2*>(p)));
}

__device__ inline float4 Times(float a, float4 v) {
  return {a * v.x, a * v.y, a * v.z, a * v.w};
}
__device__ inline float4 Fma(float a, float4 v, float4 sum) {
  return {fmaf(a, v.x, sum.x), fmaf(a, v.y, sum.y), fmaf(a, v.z, sum.z),
          fmaf(a, v.w, sum.w)};
}
__device__ inline float4 Plus(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ inline float SumOfSquares(float4 v, float sum) {
  return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}
__device__ inline float Part(float4 v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// What the step of a token needs besides its channels.
struct Coefficients {
  float4 comb[kStreams];  // [source], over destinations
  float4 post;
  float4 pre;
};

// h[k] = post[k] * y + sum_j comb[j][k] * h[j], as hc_expand has it, of streams
// with values of type T.
template <typename T>
__device__ inline void Expand(const Coefficients& c, float4 y,
                              float4 (&h)[kStreams]) {
  float4 old[kStreams];
  y = RoundedFor<T>(y);
#pragma unroll
  for (int j = 0; j < kStreams; ++j) old[j] = h[j];
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    float4 sum = Times(Part(c.post, k), y);
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      sum = Fma(Part(c.comb[j], k), old[j], sum);
    }
    h[k] = RoundedFor<T>(sum);
  }
}

template <typename T>
__device__ inline float4 Collapse(float4 pre, const float4 (&h)[kStreams]) {
  float4 x = Times(pre.x, h[0]);
#pragma unroll
  for (int s = 1; s < kStreams; ++s) x = Fma(Part(pre, s), h[s], x);
  return RoundedFor<T>(x);
}

// d += a * b: a 16 tokens x 8 channels, b 8 channels x 8 outputs, in tf32: the
// upper 19 bits of each operand are read.
__device__ inline void MultiplyTf32(float (&d)[4], const float (&a)[4],
                                    const float (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
        "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// What is left of x without the 11 bits that are read of it, exactly. Volatile,
// or the compiler keeps these of all of fn in registers as well, beyond what
// there are.
__device__ inline float LowTf32(float x) {
  uint32_t high;
  asm volatile("and.b32 %0, %1, 0xffffe000;"
               : "=r"(high)
               : "r"(__float_as_uint(x)));
  return x - __uint_as_float(high);
}

// The four lanes of a token, the same bits in each.
__device__ inline float AddLanes(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// The sums of one slab. Products: outputs 8n + 2 * column, + 1 of token `row`,
// then the same of token `row + 8`.
struct SlabSums {
  float exact[3][4] = {};   // high x high
  float across[3][4] = {};  // high x low, low x high
  float h2[2] = {};
  float x2[2] = {};

  // Adds one stream: `a`, `b` are 4 channels of the lane's two tokens, fn[n]
  // the same channels of output 8n + row. Products that go to one sum follow
  // each other at a distance, or each would wait for the last.
  __device__ void Multiply(float4 a, float4 b, const float4 (&fn)[3]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float from[4] = {Part(a, 2 * half), Part(b, 2 * half),
                             Part(a, 2 * half + 1), Part(b, 2 * half + 1)};
      float low[4], w[3][2], w_low[3][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) low[i] = LowTf32(from[i]);
#pragma unroll
      for (int n = 0; n < 3; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          w[n][k] = Part(fn[n], 2 * half + k);
          w_low[n][k] = LowTf32(w[n][k]);
        }
      }
#pragma unroll
      for (int n = 0; n < 3; ++n) MultiplyTf32(exact[n], from, w[n]);
#pragma unroll
      for (int n = 0; n < 3; ++n) MultiplyTf32(across[n], from, w_low[n]);
#pragma unroll
      for (int n = 0; n < 3; ++n) MultiplyTf32(across[n], low, w[n]);
    }
  }
  // By all lanes, when all streams are added and before any Put().
  __device__ void AddLanes() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      h2[i] = four::AddLanes(h2[i]), x2[i] = four::AddLanes(x2[i]);
    }
  }
  // Those of token i: outputs, squares, nothing. With kMore added to what is
  // there.
  template <bool kMore>
  __device__ void Put(const Lane& lane, int i, float* sums) const {
    float2* const pairs = reinterpret_cast<float2*>(sums) + lane.column;
    const auto put = [](float2* to, float2 sum) {
      *to = kMore ? float2{to->x + sum.x, to->y + sum.y} : sum;
    };
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      put(pairs + 4 * n, {exact[n][2 * i] + across[n][2 * i],
                          exact[n][2 * i + 1] + across[n][2 * i + 1]});
    }
    if (lane.column == 0) put(pairs + kSquares / 2, {h2[i], x2[i]});
    if (lane.column == 1) put(pairs + kSquares / 2, {0, 0});
  }
};

// A lane's channels of one token: expand (with kExpand), sums of squares,
// collapse. `h` becomes the expanded streams.
template <typename T, bool kExpand>
__device__ inline float4 TokenSlab(const Coefficients& c, float4 y,
                                   float4 (&h)[kStreams], float* h2,
                                   float* x2) {
  if constexpr (kExpand) Expand<T>(c, y, h);
#pragma unroll
  for (int s = 0; s < kStreams; ++s) *h2 = SumOfSquares(h[s], *h2);
  const float4 x = Collapse<T>(c.pre, h);
  *x2 = SumOfSquares(x, *x2);
  return x;
}

__device__ inline Coefficients LoadCoefficients(const HcSplitArgs& a, size_t t,
                                                bool expand) {
  Coefficients c{};
  if (expand) {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      c.comb[j] = Load(a.last_comb + (t * kStreams + j) * kStreams);
    }
    c.post = Load(a.last_post + t * kStreams);
  }
  if (a.collapse_pre != nullptr) c.pre = Load(a.collapse_pre + t * kStreams);
  return c;
}

__device__ inline float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Sinkhorn on comb logits (source by destination, in place), by one thread.
// The matrix is kept as K[j][k] / (rows[j] * columns[k]), K the softmax: to
// divide a row by its sum + eps is to replace rows[j] by
// sum_k K[j][k] / columns[k] + eps * rows[j]. The steps wait for each other,
// so what counts is their latency.
__device__ inline void Sinkhorn(float* logits, uint32_t iterations, float eps) {
  float k[kStreams][kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    float4 row = Load(logits + j * kStreams);
    const float top = fmaxf(fmaxf(row.x, row.y), fmaxf(row.z, row.w));
    row = {__expf(row.x - top), __expf(row.y - top), __expf(row.z - top),
           __expf(row.w - top)};
    const float inverse = Reciprocal((row.x + row.y) + (row.z + row.w));
#pragma unroll
    for (int i = 0; i < kStreams; ++i)
      k[j][i] = fmaf(Part(row, i), inverse, eps);
  }
  float rows[kStreams] = {1, 1, 1, 1}, r[kStreams] = {1, 1, 1, 1};
  float columns[kStreams] = {1, 1, 1, 1}, c[kStreams];
  const auto divide_columns = [&] {
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float rest = fmaf(k[0][i], r[0], eps * columns[i]);
      const float low = fmaf(k[1][i], r[1], rest);
      const float high = fmaf(k[3][i], r[3], k[2][i] * r[2]);
      columns[i] = low + high;
      c[i] = Reciprocal(columns[i]);
    }
  };
  divide_columns();
  for (uint32_t step = 1; step < iterations; ++step) {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const float rest = fmaf(k[j][0], c[0], eps * rows[j]);
      const float low = fmaf(k[j][1], c[1], rest);
      const float high = fmaf(k[j][3], c[3], k[j][2] * c[2]);
      rows[j] = low + high;
      r[j] = Reciprocal(rows[j]);
    }
    divide_columns();
  }
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    Store(logits + j * kStreams, Times(r[j], {k[j][0] * c[0], k[j][1] * c[1],
                                              k[j][2] * c[2], k[j][3] * c[3]}));
  }
}

// What turns output `o` into a logit. Loaded well before it is used.
struct Affine {
  __device__ Affine(const HcSplitArgs& a, unsigned o)
      : part(o < kStreams       ? 0
             : o < 2 * kStreams ? 1
                                : 2),
        scale(a.scale[part]),
        base(a.base[o < kOutputs ? o : 0]) {}
  unsigned part;  // pre, post, comb
  float scale, base;
};

// What is made of output `o` of token t: a coefficient, or a logit of comb in
// shared memory. `m`: the token's sums.
__device__ inline void StoreOutput(const HcSplitArgs& a, size_t t,
                                   const float* m, unsigned o,
                                   const Affine& affine, float* pre,
                                   float* comb) {
  const float values = static_cast<float>(kStreams * a.dim);
  const float factor = rsqrtf(m[kSquares] / values + a.norm_eps);
  const float z = fmaf(m[o] * factor, affine.scale, affine.base);
  if (affine.part == 0) {
    pre[o] = Sigmoid(a.sigmoid, z) + a.hc_eps;
    a.pre[t * kStreams + o] = pre[o];
  } else if (affine.part == 1) {
    a.post[t * kStreams + o - kStreams] = 2 * Sigmoid(a.sigmoid, z);
  } else {
    comb[o - 2 * kStreams] = z;
  }
}

template <typename T>
__device__ inline float4 Normalised(float4 weight, float4 x, float factor) {
  return RoundedFor<T>({weight.x * x.x * factor, weight.y * x.y * factor,
                        weight.z * x.z * factor, weight.w * x.w * factor});
}

}  // namespace ecphory::cuda::four
