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

#include "ops/cuda/codec.cuh"
#include "ops/cuda/index_scores.cuh"
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

// Where channel `c` of a query lies: in step s, lane column t holds channels
// 32t + 4s ... + 3 as columns 2t, 2t + 1, 2t + 8, 2t + 9 of the product.
__device__ unsigned PlaceOf(unsigned c) {
  const unsigned column = c / 32, step = c % 32 / 4, i = c % 4;
  return 16 * step + 2 * column + i % 2 + (i < 2 ? 0 : 8);
}

__device__ void LoadQueries(const IndexScoresArgs& a, size_t first,
                            unsigned tokens, Shared& shared) {
  for (unsigned i = threadIdx.x; i < tokens * kHeads * kDim; i += kThreads) {
    const unsigned c = i % kDim, head = i / kDim % kHeads;
    const unsigned t = i / (kDim * kHeads);
    float q = 0;
    if (head < a.heads) q = a.q[((first + t) * a.heads + head) * kDim + c];
    shared.q[t][head][PlaceOf(c)] = __float2bfloat16_rn(q);
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

// 32 values of one key, two a register.
__device__ void LoadKey(const uint8_t* row, unsigned column,
                        uint32_t (&values)[2 * kSteps]) {
  const uint32_t* const codes =
      reinterpret_cast<const uint32_t*>(row) + 4 * column;
  const float scale = E8M0ToF32(row[kDim / 2 + column]);
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const uint32_t word = codes[w];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(E2M1ToF32(word >> (8 * i) & 15) * scale,
                                E2M1ToF32(word >> (8 * i + 4) & 15) * scale);
      values[4 * w + i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
}

__device__ float Relu(float x) { return x < 0 ? 0.0f : x; }  // NaN stays NaN

// Scores of 8 keys, of which the lane's are 2 * column and + 1, for one token.
__device__ float2 Score(const IndexScoresArgs& a, const Shared& shared,
                        unsigned t, const float (&dots)[2][4]) {
  const unsigned row = threadIdx.x % kWarp / 4;
  float2 sum{};
#pragma unroll
  for (unsigned m = 0; m < 2; ++m) {
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const float weight = shared.weights[t][16 * m + 8 * i + row];
      sum.x = fmaf(Relu(dots[m][2 * i]), weight, sum.x);
      sum.y = fmaf(Relu(dots[m][2 * i + 1]), weight, sum.y);
    }
  }
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, offset);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, offset);
  }
  const float scale = a.key_scale * a.head_scale;
  return {sum.x * scale, sum.y * scale};
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

// The scores of one token and 32 keys.
__device__ void ScoreKeys(const IndexScoresArgs& a, const Shared& shared,
                          unsigned t,
                          const uint32_t (&keys)[kKeys / 8][2 * kSteps],
                          float2 (&scores)[kKeys / 8]) {
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
#pragma unroll
  for (unsigned n = 0; n < kKeys / 8; ++n) {
    scores[n] = Score(a, shared, t, dots[n]);
  }
}

// Every row of lanes has the sums: row n writes those of keys 8n ... + 7.
__device__ void StoreScores(const IndexScoresArgs& a, size_t t, size_t begin,
                            const Wanted& wanted,
                            const float2 (&scores)[kKeys / 8]) {
  const unsigned row = threadIdx.x % kWarp / 4, column = threadIdx.x % 4;
  if (row >= kKeys / 8) return;
  float2 mine = scores[0];
#pragma unroll
  for (unsigned n = 1; n < kKeys / 8; ++n) {
    if (row == n) mine = scores[n];
  }
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const size_t g = begin + 8 * row + 2 * column + i;
    if (g >= a.groups) continue;
    const float score = i == 0 ? mine.x : mine.y;
    a.scores[t * a.groups + g] = wanted(static_cast<unsigned>(g))
                                     ? score
                                     : -std::numeric_limits<float>::infinity();
  }
}

// blockIdx: keys, tokens.
__global__ void __launch_bounds__(kThreads) Kernel(IndexScoresArgs a) {
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned row = lane / 4, column = lane % 4;
  const size_t first = blockIdx.y * size_t{kTokens};
  const unsigned tokens =
      static_cast<unsigned>(min(a.tokens - first, size_t{kTokens}));
  LoadQueries(a, first, tokens, shared);
  __syncthreads();
  const size_t stride = gridDim.x * size_t{kWarps} * kKeys;
  for (size_t begin = (blockIdx.x * size_t{kWarps} + warp) * kKeys;
       begin < a.groups; begin += stride) {
    // The tokens that want any of these keys, a bit each.
    const unsigned own = static_cast<unsigned>(min(begin + lane, a.groups - 1));
    unsigned wanting = 0;
    for (unsigned t = 0; t < tokens; ++t) {
      const Wanted wanted(a, shared.visible[t], first + t);
      wanting |= static_cast<unsigned>(__any_sync(0xffffffffu, wanted(own)))
                 << t;
    }
    uint32_t keys[kKeys / 8][2 * kSteps];
    if (wanting != 0) {
#pragma unroll
      for (unsigned n = 0; n < kKeys / 8; ++n) {
        const size_t g = min(begin + 8 * n + row, a.groups - 1);
        LoadKey(a.key_rows + g * kRowBytes, column, keys[n]);
      }
    }
    for (unsigned t = 0; t < tokens; ++t) {
      float2 scores[kKeys / 8] = {};
      if ((wanting >> t & 1) != 0) ScoreKeys(a, shared, t, keys, scores);
      StoreScores(a, first + t, begin, Wanted(a, shared.visible[t], first + t),
                  scores);
      __syncwarp();
    }
  }
}

}  // namespace

bool TakesTensorCores(const IndexScoresArgs& a) {
  return a.key_format == RowFormat::kFp4Block32 && a.dim == kDim &&
         a.heads <= kHeads && a.groups < size_t{1} << 31 &&
         a.tokens <= size_t{65535} * kTokens &&
         reinterpret_cast<uintptr_t>(a.key_rows) % 4 == 0;
}

void TensorIndexScores(const IndexScoresArgs& args) {
  Note(cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(sizeof(Shared))),
       "index_scores");
  const unsigned token_blocks = Blocks(args.tokens, kTokens);
  const unsigned key_blocks = Blocks(args.groups, kWarps * kKeys);
  // Several rounds of keys a block where that fills the device, so that the
  // queries are loaded less often.
  const unsigned places = static_cast<unsigned>(4 * Multiprocessors());
  const unsigned wanted = std::max(1u, places / token_blocks);
  Kernel<<<dim3(std::min(key_blocks, wanted), token_blocks), kThreads,
           sizeof(Shared), Current().stream>>>(args);
  NoteLaunch("index_scores");
}

}  // namespace ecphory::cuda
