// A split of few tokens, H = 4: bound by the latency of two kernels.
//   1. a warp a slab of 16 channels (320 of them at D = 5120) for up to 16
//      tokens: the owed expand, the collapse, and the slab's part of all sums;
//   2. a block a token: adds the slabs up, scales x, makes the coefficients.
// fn is on its way before the kernel ahead has ended.
#include <algorithm>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

constexpr unsigned kFinishThreads = 256;
// float4 of x that a thread of the second kernel holds: D up to 8192.
constexpr int kHeld = 8;
// Tokens of a launch: the sums of more would take much memory.
constexpr size_t kBatch = 1024;

__device__ float4 LoadFn(const float* p) {
  return __ldg(reinterpret_cast<const float4*>(p));
}
__device__ float4 LoadFn(const __half* p) {
  const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&v.x));
  const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&v.y));
  return {a.x, a.y, b.x, b.y};
}
__device__ float4 LoadFn(const __nv_bfloat16* p) {
  const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
  return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
          __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u)};
}

// A lane's share of a slab's sums, of its token i.
__device__ void StoreSums(const SlabSums& slab, unsigned column, int i,
                          float* sums) {
  float2* const pairs = reinterpret_cast<float2*>(sums) + column;
#pragma unroll
  for (int n = 0; n < 3; ++n) pairs[4 * n] = ProductsOf(slab, n, i);
  pairs[kOutputs / 2] = {slab.h2[i], slab.x2[i]};
}

template <bool kExpand, typename Fn>
__global__ void __launch_bounds__(kWarp)
    SlabKernel(HcSplitArgs a, float* sums) {
  const Lane lane;
  const size_t dim = a.dim, slabs = dim / kSlab;
  const size_t first = blockIdx.x * size_t{kSlab} + 4 * lane.column;
  float4 fn[kStreams][3];
  const Fn* const weights = reinterpret_cast<const Fn*>(a.fn.data) +
                            (a.fn.first_row + lane.row) * a.fn.cols + first;
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      fn[s][n] = LoadFn(weights + 8 * n * a.fn.cols + s * dim);
    }
  }
  LetNextStart();
  WaitForEarlier();

  float4 h[2][kStreams] = {};
  SlabSums slab;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const size_t t = blockIdx.y * size_t{kTokens} + lane.row + 8 * i;
    if (t >= a.tokens) continue;
    float* const streams = a.h + t * kStreams * dim + first;
#pragma unroll
    for (int s = 0; s < kStreams; ++s) h[i][s] = Load(streams + s * dim);
    const float4 y = kExpand ? Load(a.y + t * dim + first) : float4{};
    const Coefficients c = LoadCoefficients(a, t, kExpand);
    const float4 x =
        TokenSlab<kExpand>(c, y, a.round_bf16, h[i], &slab.h2[i], &slab.x2[i]);
    if (kExpand) {
#pragma unroll
      for (int s = 0; s < kStreams; ++s) Store(streams + s * dim, h[i][s]);
    }
    if (a.collapse_pre != nullptr) Store(a.x + t * dim + first, x);
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) slab.Multiply(h[0][s], h[1][s], fn[s]);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const size_t t = blockIdx.y * size_t{kTokens} + lane.row + 8 * i;
    if (t >= a.tokens) continue;
    StoreSums(slab, lane.column, i,
              sums + (t * slabs + blockIdx.x) * kSlabSums);
  }
}

// The sums of a token over its slabs, in shared memory.
__device__ void AddSlabs(const float* sums, size_t slabs,
                         float (&groups)[kParts * kGroup][kSlabSums],
                         float* m) {
  constexpr unsigned kQuads = kSlabSums / 4;
  static_assert(kParts * kGroup * kQuads == kFinishThreads);
  const size_t part_slabs = CeilDiv(slabs, kParts * kGroup) * kGroup;
  const size_t group = threadIdx.x / kQuads, quad = threadIdx.x % kQuads;
  const size_t begin = group / kGroup * part_slabs;
  const size_t end = min(begin + part_slabs, slabs);
  float4 sum{};
#pragma unroll 10
  for (size_t slab = begin + group % kGroup; slab < end; slab += kGroup) {
    const float4 part = Load(sums + slab * kSlabSums + 4 * quad);
    sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
  }
  Store(&groups[group][4 * quad], sum);
  __syncthreads();
  if (threadIdx.x <= kCollapsed) {
    const auto of_group = [&](int g) {
      if (threadIdx.x < kOutputs) return groups[g][threadIdx.x];
      const float* const lanes = &groups[g][threadIdx.x];
      return (lanes[0] + lanes[2]) + (lanes[4] + lanes[6]);
    };
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float of_part = of_group(part * kGroup);
#pragma unroll
      for (int g = 1; g < kGroup; ++g) of_part += of_group(part * kGroup + g);
      sum += of_part;
    }
    m[threadIdx.x] = sum;
  }
  __syncthreads();
}

// The output that a thread makes something of, or kOutputs: comb by the first
// warp, which has most to do with it, pre and post by the second.
__device__ unsigned OutputOf() {
  constexpr unsigned kFirst = 2 * kStreams;
  if (threadIdx.x < kOutputs - kFirst) return kFirst + threadIdx.x;
  const unsigned o = threadIdx.x - kWarp;
  return threadIdx.x >= kWarp && o < kFirst ? o : kOutputs;
}

// kReady: x holds the collapsed vector. Otherwise it is made here, from this
// site's own pre.
template <bool kReady>
__global__ void __launch_bounds__(kFinishThreads)
    FinishKernel(HcSplitArgs a, const float* sums) {
  __shared__ float shared[kWarp];
  __shared__ __align__(16) float groups[kParts * kGroup][kSlabSums];
  __shared__ __align__(16) float m[kSums];
  __shared__ __align__(16) float comb[kStreams * kStreams];
  __shared__ __align__(16) float pre[kStreams];
  const size_t t = blockIdx.x, dim = a.dim, slabs = dim / kSlab;
  const unsigned output = OutputOf();
  const Affine affine(a, output);
  float4 weight[kHeld], x[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
    if (c < dim) weight[i] = Load(a.norm_weight + c);
  }
  LetNextStart();
  WaitForEarlier();
  if (kReady) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
      if (c < dim) x[i] = Load(a.x + t * dim + c);
    }
  }
  AddSlabs(sums + t * slabs * kSlabSums, slabs, groups, m);
  if (output < kOutputs) StoreOutput(a, t, m, output, affine, pre, comb);
  if (threadIdx.x < kWarp) {
    __syncwarp();
    if (threadIdx.x == 0) Sinkhorn(comb, a.sinkhorn_iters, a.hc_eps);
    __syncwarp();
    constexpr unsigned kSize = kStreams * kStreams;
    if (threadIdx.x < kSize)
      a.comb[t * kSize + threadIdx.x] = comb[threadIdx.x];
  }
  float x2 = m[kCollapsed];
  if (!kReady) {
    __syncthreads();
    const float4 own = Load(pre);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
      if (c >= dim) continue;
      float4 h[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) {
        h[s] = Load(a.h + (t * kStreams + s) * dim + c);
      }
      x[i] = Collapse(own, a.round_bf16, h);
      sum = SumOfSquares(x[i], sum);
    }
    x2 = BlockSum<kFinishThreads>(sum, shared);
  }
  const float factor = 1.0f / sqrtf(x2 / static_cast<float>(dim) + a.norm_eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const size_t c = 4 * (threadIdx.x + i * kFinishThreads);
    if (c >= dim) continue;
    Store(a.x + t * dim + c, Normalised(weight[i], x[i], factor, a.round_bf16));
  }
}

template <bool kExpand>
void LaunchSlabs(const HcSplitArgs& a, float* sums) {
  const dim3 grid(static_cast<unsigned>(a.dim / kSlab),
                  Blocks(a.tokens, kTokens));
  const auto kernel =
      a.fn.format == WeightFormat::kF32   ? SlabKernel<kExpand, float>
      : a.fn.format == WeightFormat::kF16 ? SlabKernel<kExpand, __half>
                                          : SlabKernel<kExpand, __nv_bfloat16>;
  LaunchOverlapped(kernel, grid, kWarp, 0, "hc_split: slabs", a, sums);
}

void Batch(const HcSplitArgs& a, float* sums) {
  a.y != nullptr ? LaunchSlabs<true>(a, sums) : LaunchSlabs<false>(a, sums);
  LaunchOverlapped(
      a.collapse_pre != nullptr ? FinishKernel<true> : FinishKernel<false>,
      dim3(static_cast<unsigned>(a.tokens)), kFinishThreads, 0,
      "hc_split: coefficients", a, static_cast<const float*>(sums));
}

}  // namespace

bool TakesFour(const HcSplitArgs& a) {
  const WeightFormat fn = a.fn.format;
  return a.streams == kStreams && a.dim % kSlab == 0 &&
         a.dim <= 4 * kHeld * kFinishThreads &&
         (fn == WeightFormat::kF32 || fn == WeightFormat::kF16 ||
          fn == WeightFormat::kBF16) &&
         Aligned(a.y) && Aligned(a.last_post) && Aligned(a.last_comb) &&
         Aligned(a.h) && Aligned(a.fn.data) && Aligned(a.collapse_pre) &&
         Aligned(a.norm_weight) && Aligned(a.x);
}

void HcSplitFew(const HcSplitArgs& args) {
  struct Sums;
  float* const sums = Scratch<Sums>(std::min(args.tokens, kBatch) * args.dim /
                                    kSlab * kSlabSums);
  if (sums == nullptr) return;
  for (size_t first = 0; first < args.tokens; first += kBatch) {
    Batch(TokensOf(args, first, std::min(kBatch, args.tokens - first)), sums);
  }
}

}  // namespace ecphory::cuda
