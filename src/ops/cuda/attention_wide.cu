// Attention of the released shape by warpgroups (ops/cuda/wgmma.cuh): out =
// softmax(q K^T) K, with one K for all heads.
//
// A block takes a token and 64 heads, and goes over its rows 64 at a time. One
// warpgroup decodes them to bf16, which holds every e4m3 and e2m1 value times
// its scale exactly, into two stages of shared memory, where they serve as
// columns of scores and, turned, of sums. Two multiply: each makes the scores
// of half of the channels, which they add up, weighs all rows for itself, and
// sums half of the channels. Queries are bf16 values (others are left to
// ops/cuda/attention_tensor.cu), weights sums of two bf16. Bound by the tensor
// cores: 6 * heads * 512 * rows operations a token.
#include "ops/cuda/attention_wide.cuh"

#include "ops/cuda/attention_rows.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/tensor.cuh"
#include "ops/cuda/wgmma.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kDim = kAttentionDim;
constexpr unsigned kHeads = kWideHeads;
constexpr unsigned kRows = 64;       // of a tile
constexpr unsigned kMultiply = 256;  // threads
constexpr unsigned kDecode = 128;
constexpr unsigned kThreads = kMultiply + kDecode;
// Of a multiprocessor's 65536, with 168 at the start.
constexpr int kMultiplyRegisters = 208, kDecodeRegisters = 88;

// Rows, or heads, of 64 channels lie together, as products want them.
constexpr unsigned kChannels = 64;
constexpr unsigned kBlocks = kDim / kChannels;
constexpr uint32_t kBlockBytes = kRows * kChannels * 2;
constexpr uint32_t kTileBytes = kBlocks * kBlockBytes;
static_assert(kHeads == kRows);

// Shared memory from a multiple of 1024 on: queries, stages of rows, scores of
// half of the channels of each warpgroup, barriers full and empty of the
// stages.
constexpr unsigned kStages = 2;
constexpr uint32_t kStage0 = kTileBytes;
constexpr uint32_t kScores = kStage0 + kStages * kTileBytes;
constexpr uint32_t kBarriers = kScores + 2 * kHeads * kRows * 4;
constexpr size_t kMemory = kBarriers + kStages * 16 + 1024;

// Where unit `unit` of 16 bytes of a row lies.
__device__ uint32_t PlaceOf(unsigned row, unsigned unit) {
  return unit / 8 * kBlockBytes + row * 128 + ((unit % 8) ^ (row % 8)) * 16;
}

__device__ void Store(uint32_t shared, uint32_t a, uint32_t b, uint32_t c,
                      uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

// d += a b of 64 x 16 by 16 x 64 bf16 values, both in shared memory; `keep` 0:
// d = a b.
__device__ void AddScores(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31])
      : "l"(a), "l"(b), "r"(keep));
}

// The block's queries, zeros where there is no head. True where the thread has
// found one that is no bf16 value; then it has stopped.
__device__ bool LoadQueries(const AttentionArgs& a, size_t t, size_t first_head,
                            uint32_t shared) {
  constexpr unsigned kUnits = kDim / 8;
  constexpr unsigned kAtOnce = 4;
  for (unsigned i0 = threadIdx.x; i0 < kHeads * kUnits;
       i0 += kAtOnce * kThreads) {
    float4 q[kAtOnce][2] = {};
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      const unsigned i = i0 + j * kThreads, head = i / kUnits;
      if (i >= kHeads * kUnits || first_head + head >= a.heads) continue;
      const float4* const from = reinterpret_cast<const float4*>(
          a.q + (t * a.heads + first_head + head) * kDim + i % kUnits * 8);
      q[j][0] = from[0], q[j][1] = from[1];
    }
    uint32_t lows = 0;
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      const unsigned i = i0 + j * kThreads;
      if (i >= kHeads * kUnits) continue;
      const SplitPair pairs[4] = {
          SplitBf16(q[j][0].x, q[j][0].y), SplitBf16(q[j][0].z, q[j][0].w),
          SplitBf16(q[j][1].x, q[j][1].y), SplitBf16(q[j][1].z, q[j][1].w)};
      lows |= pairs[0].low | pairs[1].low | pairs[2].low | pairs[3].low;
      Store(shared + PlaceOf(i / kUnits, i % kUnits), pairs[0].high,
            pairs[1].high, pairs[2].high, pairs[3].high);
    }
    if ((lows & 0x7fff7fffu) != 0) return true;
  }
  return false;
}

constexpr unsigned kAtOnce = 4;  // rows that a warp decodes

// Whose rows a warp's next ones are: where all are of one kind there are no
// branches between them, and one is decoded while another is waited for.
enum class Kind : uint8_t { kWindow, kLatents, kBoth };

// Runs run.operator()<kind>() for the rows from `first` on.
template <typename Run>
__device__ void OfKind(const RowSource& source, unsigned first,
                       const Run& run) {
  if (!source.IsWindow(first)) {
    run.template operator()<Kind::kLatents>();
  } else if (source.IsWindow(first + kAtOnce - 1)) {
    run.template operator()<Kind::kWindow>();
  } else {
    run.template operator()<Kind::kBoth>();
  }
}

// The decoding warpgroup: a warp takes 16 rows of each tile, four at a time, of
// which the next four are on their way.
__device__ void DecodeRows(const RowSource& source, uint32_t memory) {
  constexpr unsigned kOfWarp = kRows / (kDecode / kWarp);
  constexpr unsigned kParts = kOfWarp / kAtOnce;  // of a tile
  static_assert(kParts % 2 == 0);
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = (threadIdx.x - kMultiply) / kWarp;
  const unsigned parts = CeilDiv(source.rows, kRows) * kParts;
  const auto first_row = [&](unsigned part) {
    return part / kParts * kRows + warp * kOfWarp + part % kParts * kAtOnce;
  };
  // A lane an id of the warp's rows of a tile.
  const auto id_of = [&](unsigned tile) {
    return source.IdOf(tile * kRows + warp * kOfWarp + lane % kOfWarp);
  };
  int32_t id = 0, next_id = id_of(0);
  PackedRow packed[2][kAtOnce];
  const auto load = [&](unsigned part, PackedRow(&to)[kAtOnce]) {
    if (part >= parts) return;
    if (part % kParts == 0) id = next_id, next_id = id_of(part / kParts + 1);
    const unsigned first = first_row(part);
    OfKind(source, first, [&]<Kind kKind>() {
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned row = first + i;
        const int32_t of_row = __shfl_sync(
            0xffffffffu, id, static_cast<int>(part % kParts * kAtOnce + i));
        to[i] = PackedRow{};
        if (row >= source.rows) continue;
        to[i] = kKind == Kind::kWindow    ? source.LoadWindow(row)
                : kKind == Kind::kLatents ? source.LoadLatent(of_row)
                                          : source.Load(row, of_row);
      }
    });
  };
  // Of the lane's two units of a row those of odd blocks go the other way
  // round, so that eight lanes write to different banks.
  const unsigned turned = lane / 4 % 2;
  const auto decode = [&](unsigned part, const PackedRow(&from)[kAtOnce],
                          uint32_t stage) {
    const unsigned first = first_row(part);
    OfKind(source, first, [&]<Kind kKind>() {
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        uint32_t values[4][2];
        Decode(from[i],
               kKind == Kind::kBoth ? source.IsWindow(first + i)
                                    : kKind == Kind::kWindow,
               values);
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
          const bool second = j != turned;
          Store(
              stage + PlaceOf((first + i) % kRows, 2 * lane + (second ? 1 : 0)),
              second ? values[2][0] : values[0][0],
              second ? values[2][1] : values[0][1],
              second ? values[3][0] : values[1][0],
              second ? values[3][1] : values[1][1]);
        }
      }
    });
  };
  load(0, packed[0]);
  load(1, packed[1]);
  unsigned stage = 0, parity = 0;
  for (unsigned part = 0; part < parts; part += 2) {
    const uint32_t barriers = memory + kBarriers + stage * 16;
    const uint32_t to = memory + kStage0 + stage * kTileBytes;
    if (part % kParts == 0) WaitForPhase(barriers + 8, parity ^ 1);
#pragma unroll
    for (unsigned p = 0; p < 2; ++p) {
      decode(part + p, packed[p], to);
      load(part + p + 2, packed[p]);
    }
    if (part % kParts != kParts - 2) continue;
    ShowToProducts();
    Arrive(barriers);
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
}

// 2^x, 0 where that is no normal number.
__device__ float PowerOf2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
constexpr float kLog2E = 1.44269504088896f;

// What a lane has of the heads lane / 4 and that + 8 of its warp. Logarithms
// are to base 2.
struct Weights {
  float top[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of the lane's rows
};

// Scores become weights relative to the largest so far, as two bf16 each;
// rescale: what sums so far are to be multiplied by.
__device__ void Weigh(float scale, unsigned count, float (&scores)[32],
                      Weights& w, uint32_t (&high)[4][4], uint32_t (&low)[4][4],
                      float (&rescale)[2]) {
  const unsigned lane = threadIdx.x % kWarp;
  const float scale2 = scale * kLog2E;
#pragma unroll
  for (unsigned i = 0; i < 32; ++i) scores[i] *= scale2;
  if (count < kRows) {
#pragma unroll
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned row = i / 4 * 8 + lane % 4 * 2 + i % 2;
      scores[i] = row < count ? scores[i] : -INFINITY;
    }
  }
  float top[2] = {w.top[0], w.top[1]};
#pragma unroll
  for (unsigned i = 0; i < 32; ++i) {
    top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], offset));
    }
    rescale[h] = PowerOf2(w.top[h] - top[h]);
    w.sum[h] *= rescale[h];
    w.top[h] = top[h];
  }
#pragma unroll
  for (unsigned i = 0; i < 32; i += 2) {
    const unsigned h = i / 2 % 2;
    const float first = PowerOf2(scores[i] - top[h]);
    const float second = PowerOf2(scores[i + 1] - top[h]);
    w.sum[h] += first + second;
    const SplitPair pair = SplitBf16(first, second);
    high[i / 8][i / 2 % 4] = pair.high, low[i / 8][i / 2 % 4] = pair.low;
  }
}

// A multiplying warpgroup's part.
__device__ void Multiply(const AttentionArgs& a, unsigned rows, size_t t,
                         size_t first_head, uint32_t memory) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned group = warp / 4, thread = threadIdx.x % 128;
  const uint32_t first_block = group * (kBlocks / 2) * kBlockBytes;
  float out[2][64] = {};
  Weights weights;
  unsigned stage = 0, parity = 0;
  for (unsigned row0 = 0; row0 < rows; row0 += kRows) {
    const uint32_t barriers = memory + kBarriers + stage * 16;
    const uint32_t tile = memory + kStage0 + stage * kTileBytes + first_block;
    float scores[32] = {};
    WaitForPhase(barriers, parity);
    BeginProducts();
#pragma unroll
    for (unsigned s = 0; s < kDim / 2 / 16; ++s) {
      const uint32_t block = s / 4 * kBlockBytes;
      AddScores(scores, SwizzledRows(memory + first_block + block) + s % 4 * 2,
                SwizzledRows(tile + block) + s % 4 * 2, static_cast<int>(s));
    }
    CommitProducts();
    WaitForProducts<0>();
    Hold(scores);
    // The other half of the channels. Nobody writes before all have read.
    const auto score = [&](unsigned of, unsigned i) {
      return memory + kScores + ((of * 32 + i) * 128 + thread) * 4;
    };
    SynchronizeSome<1, kMultiply>();
#pragma unroll
    for (unsigned i = 0; i < 32; ++i) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(score(group, i)),
                   "f"(scores[i])
                   : "memory");
    }
    SynchronizeSome<1, kMultiply>();
#pragma unroll
    for (unsigned i = 0; i < 32; ++i) {
      float other;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(other)
                   : "r"(score(1 - group, i))
                   : "memory");
      scores[i] += other;
    }
    uint32_t high[4][4], low[4][4];
    float rescale[2];
    Weigh(a.scale, min(kRows, rows - row0), scores, weights, high, low,
          rescale);
#pragma unroll
    for (unsigned i = 0; i < 64; ++i) {
      out[0][i] *= rescale[i / 2 % 2], out[1][i] *= rescale[i / 2 % 2];
    }
    Hold(out[0]);
    Hold(out[1]);
    BeginProducts();
#pragma unroll
    for (unsigned k = 0; k < kRows / 16; ++k) {
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const uint64_t columns = SwizzledColumns(
            tile + half * 2 * kBlockBytes + k * 16 * 128, kBlockBytes);
        Wgmma<128>::AddColumns(out[half], high[k], columns, 1);
        Wgmma<128>::AddColumns(out[half], low[k], columns, 1);
      }
    }
    CommitProducts();
    WaitForProducts<0>();
    Hold(out[0]);
    Hold(out[1]);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      Hold(high[k]);
      Hold(low[k]);
    }
    if (lane == 0) Arrive(barriers + 8);
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    float sum = weights.sum[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const size_t head = first_head + warp % 4 * 16 + lane / 4 + 8 * h;
    if (head >= a.heads) continue;
    // The sink joins the sum only.
    const float sink = a.sink[head] * kLog2E;
    const float top = fmaxf(weights.top[h], sink);
    const float scaled = PowerOf2(weights.top[h] - top);
    const float factor = scaled / fmaf(sum, scaled, PowerOf2(sink - top));
    float* const to =
        a.out + (t * a.heads + head) * kDim + group * (kDim / 2) + lane % 4 * 2;
#pragma unroll
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned at = i % 16 * 4 + 2 * h;
      *reinterpret_cast<float2*>(to + i * 8) = {
          MaybeRound(factor * out[i / 16][at], a.round_bf16),
          MaybeRound(factor * out[i / 16][at + 1], a.round_bf16)};
    }
  }
}

// blockIdx: token, group of heads. left[token, group]: 1 where nothing was
// done.
__global__ void __launch_bounds__(kThreads, 1)
    Kernel(const __grid_constant__ AttentionArgs a, int* left) {
#ifdef ECPHORY_WGMMA
  extern __shared__ uint4 bytes[];
  __shared__ size_t counter;
  const uint32_t memory = (SharedAddress(bytes) + 1023) / 1024 * 1024;
  const size_t t = blockIdx.x, first_head = blockIdx.y * size_t{kHeads};
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < kStages; ++stage) {
      const uint32_t barriers = memory + kBarriers + stage * 16;
      InitBarrier(barriers, kDecode);
      InitBarrier(barriers + 8, kMultiply / kWarp);
    }
  }
  LetNextStart();
  WaitForEarlier();
  const bool lows = LoadQueries(a, t, first_head, memory);
  ShowToProducts();
  const bool leave = __syncthreads_or(lows) != 0;
  if (threadIdx.x == 0) left[t * gridDim.y + blockIdx.y] = leave ? 1 : 0;
  if (leave) return;
  const RowSource source(a, t, SpanOf(a, t, &counter));
  if (threadIdx.x >= kMultiply) {
    GiveRegisters<kDecodeRegisters>();
    DecodeRows(source, memory);
  } else {
    TakeRegisters<kMultiplyRegisters>();
    Multiply(a, source.rows, t, first_head, memory);
  }
#endif
}

}  // namespace

bool CanWideAttention(const AttentionArgs& a) {
  return HasWgmmaCode() && a.tokens > 0 && FitsSharedMemory(kMemory);
}

const int* WideAttention(const AttentionArgs& a) {
  struct Left;
  const unsigned groups = Blocks(a.heads, kHeads);
  int* const left = Scratch<Left, int>(a.tokens * groups);
  if (left == nullptr) return nullptr;  // noted
  AllowSharedMemory(Kernel, kMemory, "attention");
  LaunchOverlapped(Kernel, dim3(static_cast<unsigned>(a.tokens), groups),
                   kThreads, kMemory, "attention", a, left);
  return left;
}

}  // namespace ecphory::cuda
