// Attention of the released shape on tensor cores: out = softmax(q K^T) K, with
// one K for all heads.
//
// A block takes a token, up to 32 heads and a share of its rows, 32 at a time:
// they are decoded to bf16, which holds every e4m3 and e2m1 value times its
// scale exactly. Two blocks share a multiprocessor, so that one multiplies
// while the other decodes or weighs. Queries and weights are sums of two bf16,
// so that products have 16 bits. Of few tokens the rows are shared out among
// several blocks, and a second kernel puts their parts together: bound by
// latency. Of many a block takes them all: bound by the tensor cores,
// 4 * heads * 512 * rows products of two terms a token.
#include <algorithm>

#include "ops/cuda/attention_rows.cuh"
#include "ops/cuda/attention_wide.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/tensor.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kDim = kAttentionDim;
constexpr unsigned kHeads = 32;  // of a block
constexpr unsigned kRows = 32;   // of a tile
// Groups of 16 heads, each with four warps: of the scores they make 16 rows and
// half of the channels each, of the sums a quarter of the channels.
constexpr unsigned kHeadWarps = kHeads / 16, kColumnWarps = 4;
constexpr unsigned kHalves = 2, kScoreRows = kRows / kHalves;
constexpr unsigned kThreads = kHeadWarps * kColumnWarps * kWarp;
constexpr unsigned kWarpDim = kDim / kColumnWarps;
constexpr unsigned kWarpRows = kRows / (kThreads / kWarp);  // to decode
// 16 bytes more a line: eight lines of a matrix then lie in different banks.
constexpr unsigned kLine = kDim + 8, kWeightLine = kRows + 8;

struct Shared {
  __nv_bfloat16 q[2][kHeads][kLine];  // high, low
  __nv_bfloat16 rows[kRows][kLine];
  __nv_bfloat16 weights[2][kHeads][kWeightLine];
  float scores[kHalves][kHeads][kRows + 4];  // of half the channels each
  float top[kHeads], sum[kHeads], rescale[kHeads];
  size_t counter;
};

// A share of a token's rows: their weighted sum, relative to `top`, for
// [calls, tokens, shares, heads].
struct Parts {
  float* out;  // [..., kDim]
  float2* top_and_sum;
  unsigned shares;
  unsigned tokens;       // the most of a call
  unsigned head_groups;  // of kHeads
  __device__ size_t At(unsigned call, size_t t, unsigned share,
                       size_t heads) const {
    return ((call * size_t{tokens} + t) * shares + share) * heads;
  }
};

// q as high and low parts, nothing where there is no head. Whether any low part
// of the thread's is not 0, as those of bf16 values are.
__device__ bool LoadQueries(const AttentionArgs& a, size_t t, size_t first_head,
                            Shared& shared) {
  uint32_t any_low = 0;
#pragma unroll 8
  for (unsigned i = threadIdx.x; i < kHeads * kDim / 4; i += kThreads) {
    const unsigned head = i / (kDim / 4), c = i % (kDim / 4) * 4;
    float4 q{};
    if (first_head + head < a.heads) {
      q = *reinterpret_cast<const float4*>(
          a.q + (t * a.heads + first_head + head) * kDim + c);
    }
    const SplitPair low = SplitBf16(q.x, q.y), high = SplitBf16(q.z, q.w);
    *reinterpret_cast<uint2*>(&shared.q[0][head][c]) = {low.high, high.high};
    *reinterpret_cast<uint2*>(&shared.q[1][head][c]) = {low.low, high.low};
    any_low |= low.low | high.low;
  }
  return (any_low & 0x7fff7fffu) != 0;
}

// scores = q K^T: a warp 16 heads by 16 rows, over half of the channels.
template <unsigned kParts>  // of q
__device__ void Score(Shared& shared) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned head = warp / kColumnWarps * 16;
  const unsigned row = warp % kHalves * kScoreRows;
  const unsigned half = warp % kColumnWarps / kHalves;
  float sums[kParts][2][4] = {};  // two times 8 rows
#pragma unroll 4
  for (unsigned i = 0; i < kDim / kHalves; i += 16) {
    const unsigned k = half * (kDim / kHalves) + i;
    uint32_t keys[4];
    LoadMatrices(
        keys,
        &shared.rows[row + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
#pragma unroll
    for (unsigned part = 0; part < kParts; ++part) {
      uint32_t q[4];
      LoadMatrices(q, &shared.q[part][head + lane % 16][k + lane / 16 * 8]);
      MultiplyBf16(sums[part][0], q, keys[0], keys[1]);
      MultiplyBf16(sums[part][1], q, keys[2], keys[3]);
    }
  }
#pragma unroll
  for (unsigned n = 0; n < 2; ++n) {
    const auto sum = [&](int i) {
      return kParts == 1 ? sums[0][n][i]
                         : sums[0][n][i] + sums[kParts - 1][n][i];
    };
    float* const to =
        &shared.scores[half][head + lane / 4][row + 8 * n + lane % 4 * 2];
    *reinterpret_cast<float2*>(to) = {sum(0), sum(1)};
    *reinterpret_cast<float2*>(to + 8 * (kRows + 4)) = {sum(2), sum(3)};
  }
}

// Eight lanes a head: the tile's weights relative to the largest score so far.
__device__ void Weigh(float scale, unsigned count, Shared& shared) {
  const unsigned head = threadIdx.x / 8, first = threadIdx.x % 8 * 4;
  float score[4], weight[4];
  float top = shared.top[head];
  const float old_top = top;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float dot =
        shared.scores[0][head][first + i] + shared.scores[1][head][first + i];
    score[i] = first + i < count ? scale * dot : -INFINITY;
    top = fmaxf(top, score[i]);
  }
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) {
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, offset));
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    weight[i] = expf(score[i] - top);
    sum += weight[i];
  }
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  const SplitPair a = SplitBf16(weight[0], weight[1]);
  const SplitPair b = SplitBf16(weight[2], weight[3]);
  *reinterpret_cast<uint2*>(&shared.weights[0][head][first]) = {a.high, b.high};
  *reinterpret_cast<uint2*>(&shared.weights[1][head][first]) = {a.low, b.low};
  __syncwarp();
  if (threadIdx.x % 8 == 0) {
    const float rescale = expf(old_top - top);
    shared.rescale[head] = rescale;
    shared.sum[head] = fmaf(shared.sum[head], rescale, sum);
    shared.top[head] = top;
  }
}

// out = out * rescale + weights * K: a warp 16 heads by kWarpDim channels.
__device__ void Accumulate(float (&out)[kWarpDim / 8][4], Shared& shared) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned head = warp / kColumnWarps * 16;
  const unsigned c = warp % kColumnWarps * kWarpDim;
  const float first = shared.rescale[head + lane / 4];
  const float second = shared.rescale[head + lane / 4 + 8];
#pragma unroll
  for (unsigned n = 0; n < kWarpDim / 8; ++n) {
    out[n][0] *= first, out[n][1] *= first;
    out[n][2] *= second, out[n][3] *= second;
  }
#pragma unroll
  for (unsigned k = 0; k < kRows; k += 16) {
    uint32_t weights[2][4];
#pragma unroll
    for (unsigned part = 0; part < 2; ++part) {
      LoadMatrices(weights[part],
                   &shared.weights[part][head + lane % 16][k + lane / 16 * 8]);
    }
#pragma unroll
    for (unsigned n = 0; n < kWarpDim / 8; n += 2) {
      uint32_t rows[4];
      LoadTransposed(rows,
                     &shared.rows[k + lane % 16][c + 8 * n + lane / 16 * 8]);
#pragma unroll
      for (unsigned part = 0; part < 2; ++part) {
        MultiplyBf16(out[n], weights[part], rows[0], rows[1]);
        MultiplyBf16(out[n + 1], weights[part], rows[2], rows[3]);
      }
    }
  }
}

// Writes what the block has: the result, or a part of it.
__device__ void Finish(const AttentionArgs& a, const Parts& parts,
                       unsigned call, size_t t, size_t first_head,
                       const float (&out)[kWarpDim / 8][4],
                       const Shared& shared) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const bool whole = parts.shares == 1;
  const unsigned c = warp % kColumnWarps * kWarpDim + lane % 4 * 2;
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned row = warp / kColumnWarps * 16 + lane / 4 + 8 * i;
    const size_t head = first_head + row;
    if (head >= a.heads) continue;
    float factor = 1;
    size_t at = t * a.heads + head;
    if (whole) {
      // The sink joins the sum only.
      const float top = fmaxf(shared.top[row], a.sink[head]);
      const float scaled = expf(shared.top[row] - top);
      factor = scaled / fmaf(shared.sum[row], scaled, expf(a.sink[head] - top));
    } else {
      at = parts.At(call, t, blockIdx.x, a.heads) + head;
      if (c == 0) {
        parts.top_and_sum[at] = {shared.top[row], shared.sum[row]};
      }
    }
    float* const to = (whole ? a.out : parts.out) + at * kDim + c;
    const bool round = whole && a.round_bf16;
#pragma unroll
    for (unsigned n = 0; n < kWarpDim / 8; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n) = {
          MaybeRound(factor * out[n][2 * i], round),
          MaybeRound(factor * out[n][2 * i + 1], round)};
    }
  }
}

// blockIdx: share, token, group of heads of a call. `left`, where given, says
// which groups of kWideHeads heads of which tokens are to be computed.
template <unsigned kMost>
__global__ void __launch_bounds__(kThreads, 2)
    Kernel(const __grid_constant__ KernelCalls<AttentionArgs, kMost> calls,
           Parts parts, const int* left) {
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  LetNextStart();
  WaitForEarlier();
  const unsigned call = kMost == 1 ? 0 : blockIdx.z / parts.head_groups;
  const AttentionArgs& a = calls[call];
  const size_t t = blockIdx.y;
  const size_t first_head =
      (blockIdx.z - call * parts.head_groups) * size_t{kHeads};
  if (t >= a.tokens) return;
  if (left != nullptr &&
      left[t * CeilDiv(a.heads, kWideHeads) + first_head / kWideHeads] == 0) {
    return;
  }
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const RowSource source(a, t, SpanOf(a, t, &shared.counter));
  const unsigned tiles = CeilDiv(source.rows, kRows);
  const unsigned begin = tiles * blockIdx.x / parts.shares * kRows;
  const unsigned end =
      min(tiles * (blockIdx.x + 1) / parts.shares * kRows, source.rows);
  PackedRow next[kWarpRows];
  // A lane an id of the warp's rows of a tile.
  const auto id_of = [&](unsigned tile) {
    return source.IdOf(tile + warp * kWarpRows + lane % kWarpRows);
  };
  int32_t next_id = id_of(begin);
  const auto load = [&](unsigned tile) {
#pragma unroll
    for (unsigned i = 0; i < kWarpRows; ++i) {
      const unsigned row = tile + warp * kWarpRows + i;
      const int32_t id = __shfl_sync(0xffffffffu, next_id, static_cast<int>(i));
      next[i] = row < end ? source.Load(row, id) : PackedRow{};
    }
    next_id = id_of(tile + kRows);
  };
  load(begin);
  const bool any_low = LoadQueries(a, t, first_head, shared);
  if (threadIdx.x < kHeads) {
    shared.top[threadIdx.x] = -INFINITY;
    shared.sum[threadIdx.x] = 0;
  }
  const bool two_parts = __syncthreads_or(any_low) != 0;
  float out[kWarpDim / 8][4] = {};
  for (unsigned tile = begin; tile < end; tile += kRows) {
#pragma unroll
    for (unsigned i = 0; i < kWarpRows; ++i) {
      const unsigned row = warp * kWarpRows + i;
      uint32_t values[4][2];
      Decode(next[i], source.IsWindow(tile + row), values);
      uint4* const to = reinterpret_cast<uint4*>(&shared.rows[row][16 * lane]);
      to[0] = {values[0][0], values[0][1], values[1][0], values[1][1]};
      to[1] = {values[2][0], values[2][1], values[3][0], values[3][1]};
    }
    load(tile + kRows);
    __syncthreads();
    two_parts ? Score<2>(shared) : Score<1>(shared);
    __syncthreads();
    Weigh(a.scale, min(kRows, end - tile), shared);
    __syncthreads();
    Accumulate(out, shared);
    __syncthreads();
  }
  Finish(a, parts, call, t, first_head, out, shared);
}

// The shares of one head of a token of a call: a thread four channels.
template <unsigned kMost>
__global__ void __launch_bounds__(kDim / 4) CombineKernel(
    const __grid_constant__ KernelCalls<AttentionArgs, kMost> calls,
    Parts parts) {
  const AttentionArgs& a = calls[blockIdx.z];
  const size_t t = blockIdx.y, head = blockIdx.x;
  const auto at = [&](unsigned share) {
    return parts.At(blockIdx.z, t, share, a.heads) + head;
  };
  const float sink = a.sink[head];
  LetNextStart();
  WaitForEarlier();
  if (t >= a.tokens) return;
  float top = sink;
  for (unsigned s = 0; s < parts.shares; ++s) {
    top = fmaxf(top, parts.top_and_sum[at(s)].x);
  }
  float sum = expf(sink - top);
  float4 out{};
#pragma unroll 8
  for (unsigned s = 0; s < parts.shares; ++s) {
    const float2 part = parts.top_and_sum[at(s)];
    const float scale = expf(part.x - top);
    const float4 v = *reinterpret_cast<const float4*>(parts.out + at(s) * kDim +
                                                      4 * threadIdx.x);
    sum = fmaf(part.y, scale, sum);
    out = {fmaf(scale, v.x, out.x), fmaf(scale, v.y, out.y),
           fmaf(scale, v.z, out.z), fmaf(scale, v.w, out.w)};
  }
  *reinterpret_cast<float4*>(a.out + (t * a.heads + head) * kDim +
                             4 * threadIdx.x) = {
      MaybeRound(out.x / sum, a.round_bf16),
      MaybeRound(out.y / sum, a.round_bf16),
      MaybeRound(out.z / sum, a.round_bf16),
      MaybeRound(out.w / sum, a.round_bf16)};
}

// As many blocks as run at a time, a tile each at least.
unsigned Shares(std::span<const AttentionArgs> calls, unsigned head_groups) {
  const AttentionArgs& first = calls[0];
  const size_t latents = first.selected != nullptr ? first.topk : 0;
  const size_t most = CeilDiv(first.window + latents, kRows);
  const size_t places = 2 * static_cast<size_t>(Multiprocessors());
  size_t tokens = 0;
  for (const AttentionArgs& args : calls) tokens += args.tokens;
  return static_cast<unsigned>(
      std::clamp<size_t>(places / (tokens * head_groups), 1, most));
}

bool Aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool TakesTensorCores(const AttentionArgs& a) {
  return a.dim == kDim && a.heads >= 16 && a.tokens <= 65535 &&
         a.window_capacity < size_t{1} << 30 &&
         a.window_format == RowFormat::kFp8Block32 &&
         (a.selected == nullptr || a.latent_format == RowFormat::kFp4Block16) &&
         Aligned(a.q) && Aligned(a.out) && Aligned(a.window_rows) &&
         (a.selected == nullptr || Aligned(a.latent_rows)) &&
         FitsSharedMemory(sizeof(Shared));
}

namespace {

template <unsigned kMost>
void Launch(const KernelCalls<AttentionArgs, kMost>& of_kernel,
            std::span<const AttentionArgs> calls) {
  const unsigned n = static_cast<unsigned>(calls.size());
  const unsigned tokens =
      static_cast<unsigned>(Most(calls, &AttentionArgs::tokens));
  if (tokens == 0) return;
  const size_t heads = calls[0].heads;
  const unsigned head_groups = Blocks(heads, kHeads);
  Parts parts{nullptr, nullptr, Shares(calls, head_groups), tokens,
              head_groups};
  if (parts.shares > 1) {
    struct Outs;
    struct TopsAndSums;
    const size_t count = size_t{n} * tokens * parts.shares * heads;
    parts.out = Scratch<Outs>(count * kDim);
    parts.top_and_sum = Scratch<TopsAndSums, float2>(count);
    if (parts.out == nullptr || parts.top_and_sum == nullptr) return;
  }
  // Queries that are no bf16 values are left by warpgroups.
  const int* left = nullptr;
  if (n == 1 && parts.shares == 1 && CanWideAttention(calls[0])) {
    left = WideAttention(calls[0]);
    if (left == nullptr) return;  // noted
  }
  Note(cudaFuncSetAttribute(Kernel<kMost>,
                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(sizeof(Shared))),
       "attention");
  LaunchOverlapped(Kernel<kMost>, dim3(parts.shares, tokens, head_groups * n),
                   kThreads, sizeof(Shared), "attention", of_kernel, parts,
                   left);
  if (parts.shares == 1) return;
  LaunchOverlapped(CombineKernel<kMost>,
                   dim3(static_cast<unsigned>(heads), tokens, n), kDim / 4, 0,
                   "attention: shares", of_kernel, parts);
}

}  // namespace

void TensorAttention(const Calls<AttentionArgs>& all) {
  ForEachLaunch(
      all, [](const auto& of_kernel, auto calls) { Launch(of_kernel, calls); });
}

}  // namespace ecphory::cuda
