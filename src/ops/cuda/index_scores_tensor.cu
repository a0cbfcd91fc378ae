// Index scores on tensor cores: FP4 keys of 128 values, up to 32 heads.
//
// Queries and keys are e2m1 codes times powers of two, which bf16 holds
// exactly, and so are their products in fp32. A warp decodes 32 keys into
// registers once and multiplies them with the queries of a few tokens, which
// the block keeps in shared memory. A lane holds one block of 32 values of a
// key: the order of the channels in the products is theirs. Of one token bound
// by the keys' memory, 68 bytes each; of many by the tensor cores,
// 2 * 32 * 128 products an entry and token.
#include <algorithm>
#include <limits>

#include "ops/cuda/calls.cuh"
#include "ops/cuda/codec_bf16.cuh"
#include "ops/cuda/index_scores.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/tensor.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kDim = 128, kHeads = 32;
constexpr unsigned kRowBytes = kDim / 2 + kDim / 32;
constexpr unsigned kSteps = kDim / 16;
constexpr unsigned kKeys = 32;   // of a warp at a time
constexpr unsigned kTokens = 8;  // of a block
constexpr unsigned kWarps = 8, kThreads = kWarps * kWarp;
constexpr unsigned kLine = kDim + 8;  // lines of a matrix in different banks

struct Shared {
  __nv_bfloat16 q[kTokens][kHeads][kLine];
  float weights[kTokens][kHeads];
  unsigned visible[kTokens];  // entries
};

// Where channels c and c + 1 of a query lie, c + 2 and c + 3 eight places on (c
// a multiple of 4): in step s, lane column t holds channels 32t + 4s ... + 3 as
// columns 2t, 2t + 1, 2t + 8, 2t + 9 of the product.
__device__ unsigned PlaceOf(unsigned c) {
  const unsigned column = c / 32, step = c % 32 / 4;
  return 16 * step + 2 * column;
}

__device__ void LoadQueries(const IndexScoresArgs& a, size_t first,
                            unsigned tokens, Shared& shared) {
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < tokens * kHeads * (kDim / 4);
       i += kThreads) {
    const unsigned c = i % (kDim / 4) * 4, head = i / (kDim / 4) % kHeads;
    const unsigned t = i / (kDim / 4 * kHeads);
    float4 q{};
    if (head < a.heads) {
      q = *reinterpret_cast<const float4*>(
          a.q + ((first + t) * a.heads + head) * kDim + c);
    }
    __nv_bfloat16* const to = &shared.q[t][head][PlaceOf(c)];
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(q.x, q.y);
    *reinterpret_cast<__nv_bfloat162*>(to + 8) =
        __floats2bfloat162_rn(q.z, q.w);
  }
  for (unsigned i = threadIdx.x; i < tokens * kHeads; i += kThreads) {
    const unsigned head = i % kHeads, t = i / kHeads;
    shared.weights[t][head] =
        head < a.heads ? a.weights[(first + t) * a.heads + head] : 0.0f;
  }
  if (threadIdx.x < tokens) {
    const uint64_t visible =
        (a.first_position + first + threadIdx.x + 1) / a.ratio;
    shared.visible[threadIdx.x] =
        static_cast<unsigned>(min(visible, static_cast<uint64_t>(a.groups)));
  }
}

// A lane's part of 32 keys as it lies in memory: a block of each of four.
struct PackedKeys {
  uint32_t codes[kKeys / 8][4];
  uint8_t scales[kKeys / 8];

  // The last entry stands in for those past the end.
  __device__ void Load(const IndexScoresArgs& a, size_t begin) {
    const unsigned row = threadIdx.x % kWarp / 4, column = threadIdx.x % 4;
#pragma unroll
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      const size_t g = min(begin + 8 * n + row, a.groups - 1);
      const uint8_t* const key = a.key_rows + g * kRowBytes;
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) {
        codes[n][w] = reinterpret_cast<const uint32_t*>(key)[4 * column + w];
      }
      scales[n] = key[kDim / 2 + column];
    }
  }
  // Two values a register.
  __device__ void Decode(uint32_t (&keys)[kKeys / 8][2 * kSteps]) const {
#pragma unroll
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      const float scale = E8M0ToF32(scales[n]);
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) {
        uint32_t pairs[4];
        E2M1ToBF16(codes[n][w], scale, pairs);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) keys[n][4 * w + i] = pairs[i];
      }
    }
  }
};

__device__ float Relu(float x) { return x < 0 ? 0.0f : x; }  // NaN stays NaN

// Of 8 values a lane, sums over the 8 lanes of a column: that of value r in row
// r.
__device__ float SumOverRows(float (&v)[8]) {
  const unsigned row = threadIdx.x % kWarp / 4;
#pragma unroll
  for (unsigned half = 4; half >= 1; half /= 2) {
    const bool upper = (row & half) != 0;
#pragma unroll
    for (unsigned i = 0; i < half; ++i) {
      const float keep = upper ? v[i + half] : v[i];
      const float send = upper ? v[i] : v[i + half];
      v[i] = keep + __shfl_xor_sync(0xffffffffu, send, 4 * half);
    }
  }
  return v[0];
}

// Which entries are scored for a token.
struct Wanted {
  __device__ Wanted(const IndexScoresArgs& a, unsigned visible_entries,
                    size_t t)
      : visible(visible_entries),
        block_size(static_cast<unsigned>(a.block_size)),
        mask(a.mask == nullptr ? nullptr
                               : a.mask + t * CeilDiv(a.groups, a.block_size)) {
  }
  __device__ bool operator()(unsigned g) const {
    return g < visible && (mask == nullptr || mask[g / block_size] != 0);
  }
  unsigned visible, block_size;
  const uint8_t* mask;  // of the token, or null
};

// The key, of 32, whose score a lane ends up with.
__device__ unsigned KeyOf() {
  const unsigned row = threadIdx.x % kWarp / 4;
  return 8 * (row / 2) + 2 * (threadIdx.x % 4) + row % 2;
}

// The score of one token and key KeyOf().
__device__ float Score(const IndexScoresArgs& a, const Shared& shared,
                       unsigned t,
                       const uint32_t (&keys)[kKeys / 8][2 * kSteps]) {
  const unsigned lane = threadIdx.x % kWarp;
  float dots[kKeys / 8][2][4] = {};
#pragma unroll
  for (unsigned s = 0; s < kSteps; ++s) {
#pragma unroll
    for (unsigned m = 0; m < 2; ++m) {
      uint32_t q[4];
      LoadMatrices(q, &shared.q[t][16 * m + lane % 16][16 * s + lane / 16 * 8]);
#pragma unroll
      for (unsigned n = 0; n < kKeys / 8; ++n) {
        MultiplyBf16(dots[n][m], q, keys[n][2 * s], keys[n][2 * s + 1]);
      }
    }
  }
  // The lane's heads, and of each n two keys.
  float sums[8] = {};
#pragma unroll
  for (unsigned head = 0; head < 4; ++head) {
    const float weight = shared.weights[t][8 * head + lane / 4];
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      const float dot = dots[i / 2][head / 2][head % 2 * 2 + i % 2];
      sums[i] = fmaf(Relu(dot), weight, sums[i]);
    }
  }
  return SumOverRows(sums) * (a.key_scale * a.head_scale);
}

// blockIdx: keys, tokens, calls.
template <unsigned kMost>
__global__ void __launch_bounds__(kThreads)
    Kernel(const __grid_constant__ KernelCalls<IndexScoresArgs, kMost> calls) {
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  LetNextStart();
  WaitForEarlier();
  const IndexScoresArgs& a = calls[blockIdx.z];
  if (a.groups == 0 || blockIdx.y * size_t{kTokens} >= a.tokens) return;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const size_t first = blockIdx.y * size_t{kTokens};
  const unsigned tokens =
      static_cast<unsigned>(min(a.tokens - first, size_t{kTokens}));
  const size_t stride = gridDim.x * size_t{kWarps} * kKeys;
  size_t begin = (blockIdx.x * size_t{kWarps} + warp) * kKeys;
  PackedKeys packed;
  packed.Load(a, begin);  // on its way while the queries are loaded
  LoadQueries(a, first, tokens, shared);
  __syncthreads();
  for (; begin < a.groups; begin += stride) {
    // The tokens that want any of these keys, a bit each.
    const unsigned own = static_cast<unsigned>(min(begin + lane, a.groups - 1));
    unsigned wanting = 0;
    for (unsigned t = 0; t < tokens; ++t) {
      const Wanted wanted(a, shared.visible[t], first + t);
      wanting |= static_cast<unsigned>(__any_sync(0xffffffffu, wanted(own)))
                 << t;
    }
    uint32_t keys[kKeys / 8][2 * kSteps];
    packed.Decode(keys);
    const size_t g = begin + KeyOf();
    for (unsigned t = 0; t < tokens; ++t) {
      float score = -std::numeric_limits<float>::infinity();
      if ((wanting >> t & 1) != 0) {
        const float of_key = Score(a, shared, t, keys);
        const Wanted wanted(a, shared.visible[t], first + t);
        if (g < a.groups && wanted(static_cast<unsigned>(g))) score = of_key;
      }
      if (g < a.groups) a.scores[(first + t) * a.groups + g] = score;
    }
    packed.Load(a, begin + stride);
  }
}

}  // namespace

bool TakesTensorCores(const IndexScoresArgs& a) {
  return a.key_format == RowFormat::kFp4Block32 && a.dim == kDim &&
         a.heads <= kHeads && a.groups < size_t{1} << 31 &&
         a.tokens <= size_t{65535} * kTokens &&
         reinterpret_cast<uintptr_t>(a.key_rows) % 4 == 0 &&
         reinterpret_cast<uintptr_t>(a.q) % 16 == 0 &&
         FitsSharedMemory(sizeof(Shared));
}

namespace {

template <unsigned kMost>
void Launch(const KernelCalls<IndexScoresArgs, kMost>& of_kernel,
            std::span<const IndexScoresArgs> calls) {
  const size_t groups = Most(calls, &IndexScoresArgs::groups);
  const size_t tokens = Most(calls, &IndexScoresArgs::tokens);
  if (groups == 0 || tokens == 0) return;
  const unsigned n = static_cast<unsigned>(calls.size());
  Note(cudaFuncSetAttribute(Kernel<kMost>,
                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(sizeof(Shared))),
       "index_scores");
  const unsigned token_blocks = Blocks(tokens, kTokens);
  const unsigned key_blocks = Blocks(groups, kWarps * kKeys);
  // Several rounds of keys a block where that fills the device, so that the
  // queries are loaded less often.
  const unsigned places = static_cast<unsigned>(4 * Multiprocessors());
  const unsigned wanted = std::max(1u, places / (token_blocks * n));
  LaunchOverlapped(Kernel<kMost>,
                   dim3(std::min(key_blocks, wanted), token_blocks, n),
                   kThreads, sizeof(Shared), "index_scores", of_kernel);
}

}  // namespace

void TensorIndexScores(const Calls<IndexScoresArgs>& all) {
  ForEachLaunch(
      all, [](const auto& of_kernel, auto calls) { Launch(of_kernel, calls); });
}

}  // namespace ecphory::cuda
