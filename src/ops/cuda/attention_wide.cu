// Attention of the released shape by warpgroups (ops/cuda/wgmma.cuh): out =
// softmax(q K^T) K, with one K for all heads.
//
// A block takes a token and 64 heads, and goes over its rows 64 at a time. Two
// warpgroups decode them to bf16, which holds every e4m3 and e2m1 value times
// its scale exactly, into two stages of shared memory, where they serve as
// columns of scores and, turned, of sums. Two others multiply: each makes the
// scores of half of the rows and weighs them, and with all weights, which go
// through shared memory, sums half of the channels. Queries are bf16 values
// (others are left to ops/cuda/attention_tensor.cu), weights sums of two bf16.
// 6 * heads * 512 * rows operations a token for the tensor cores; decoding
// takes as long.
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
constexpr unsigned kDecode = 256;
constexpr unsigned kThreads = kMultiply + kDecode;
// Of a multiprocessor's 65536, with 128 at the start.
constexpr int kMultiplyRegisters = 176, kDecodeRegisters = 80;

// Rows, or heads, of 64 channels lie together, as products want them.
constexpr unsigned kChannels = 64;
constexpr unsigned kBlocks = kDim / kChannels;
constexpr uint32_t kBlockBytes = kRows * kChannels * 2;
constexpr uint32_t kTileBytes = kBlocks * kBlockBytes;
static_assert(kHeads == kRows);

// Shared memory from a multiple of 1024 on: queries, stages of rows, weights of
// a tile's rows (the high parts of all heads, then the low ones), a float of
// each warpgroup's heads, barriers full and empty of the stages.
constexpr unsigned kStages = 2;
constexpr uint32_t kStage0 = kTileBytes;
constexpr uint32_t kWeights = kStage0 + kStages * kTileBytes;
constexpr uint32_t kWeightBytes = kHeads * kRows * 2;
constexpr uint32_t kOfHeads = kWeights + 2 * kWeightBytes;
constexpr uint32_t kBarriers = kOfHeads + 2 * kHeads * 4;
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

// d += a b of 64 x 16 by 16 x 32 bf16 values, both in shared memory; `keep` 0:
// d = a b.
__device__ void AddScores(float (&d)[16], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
      "%15}, %16, %17, p, 1, 1, 0, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
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

// The decoding warpgroups: a warp takes 8 rows of each tile, four at a time, of
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
    FenceAsyncProxy();
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

// A float of head `head` of a warpgroup, in shared memory.
__device__ uint32_t OfHead(uint32_t memory, unsigned group, unsigned head) {
  return memory + kOfHeads + (group * kHeads + head) * 4;
}
__device__ void StoreFloat(uint32_t shared, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(value) : "memory");
}
__device__ float LoadFloat(uint32_t shared) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];"
               : "=f"(value)
               : "r"(shared)
               : "memory");
  return value;
}
__device__ void StoreWord(uint32_t shared, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

// A multiplying warpgroup's part. A lane has the heads lane / 4 and that + 8 of
// its warp; of scores the rows 8 * j + lane % 4 * 2 and the next of the
// warpgroup's. Logarithms are to base 2.
__device__ void Multiply(const AttentionArgs& a, unsigned rows, size_t t,
                         size_t first_head, uint32_t memory) {
  constexpr unsigned kOwnRows = kRows / 2, kOwn = kOwnRows / 8;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned head0 = warp % 4 * 16 + lane / 4;
  // Of a lane that speaks for all: places in shared memory that depend on it
  // are then known to be the same for the whole warp.
  const unsigned group = __shfl_sync(0xffffffffu, warp / 4, 0);
  const uint32_t channels = group * (kBlocks / 2) * kBlockBytes;
  const float scale = a.scale * kLog2E;
  float out[2][64] = {};
  float scores[4 * kOwn] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of the lane's rows
  unsigned stage = 0, parity = 0;
  const auto begin_scores = [&] {
    const uint32_t barriers = memory + kBarriers + stage * 16;
    uint64_t queries = SwizzledRows(memory);
    uint64_t own = SwizzledRows(memory + kStage0 + stage * kTileBytes +
                                group * kOwnRows * 128);
    WaitForPhase(barriers, parity);
    BeginProducts();
    // Unrolled, all of the descriptions would be kept in registers.
#pragma unroll 1
    for (unsigned block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (unsigned s = 0; s < kChannels / 16; ++s) {
        AddScores(scores, queries + 2 * s, own + 2 * s,
                  static_cast<int>(block + s));
      }
      queries += kBlockBytes >> 4, own += kBlockBytes >> 4;
    }
    CommitProducts();
  };
  Hold(scores);
  begin_scores();
  WaitForProducts<0>();
  Hold(scores);
  for (unsigned row0 = 0;; row0 += kRows) {
#pragma unroll
    for (unsigned i = 0; i < 4 * kOwn; ++i) scores[i] *= scale;
    if (rows - row0 < kRows) {
#pragma unroll
      for (unsigned i = 0; i < 4 * kOwn; ++i) {
        const unsigned row =
            row0 + group * kOwnRows + i / 4 * 8 + lane % 4 * 2 + i % 2;
        scores[i] = row < rows ? scores[i] : -INFINITY;
      }
    }
    // The largest score of a head so far, of both warpgroups' rows.
    float most[2], rescale[2];
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      most[h] = scores[2 * h];
#pragma unroll
      for (unsigned i = 0; i < 4 * kOwn; ++i) {
        if (i / 2 % 2 == h) most[h] = fmaxf(most[h], scores[i]);
      }
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) {
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], offset));
      }
      if (lane % 4 == 0) {
        StoreFloat(OfHead(memory, group, head0 + 8 * h), most[h]);
      }
    }
    SynchronizeSome<1, kMultiply>();
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const float other = LoadFloat(OfHead(memory, 1 - group, head0 + 8 * h));
      most[h] = fmaxf(fmaxf(top[h], most[h]), other);
      rescale[h] = PowerOf2(top[h] - most[h]);
      sum[h] *= rescale[h];
      top[h] = most[h];
    }
    // Weights relative to it, as two bf16 each. Both warpgroups have ended
    // their products with those before.
#pragma unroll
    for (unsigned j = 0; j < kOwn; ++j) {
#pragma unroll
      for (unsigned h = 0; h < 2; ++h) {
        const float first = PowerOf2(scores[4 * j + 2 * h] - top[h]);
        const float second = PowerOf2(scores[4 * j + 2 * h + 1] - top[h]);
        sum[h] += first + second;
        const SplitPair pair = SplitBf16(first, second);
        const unsigned head = head0 + 8 * h;
        const uint32_t to = memory + kWeights + head * 128 +
                            ((group * kOwn + j) ^ head % 8) * 16 + lane % 4 * 4;
        StoreWord(to, pair.high);
        StoreWord(to + kWeightBytes, pair.low);
      }
    }
    if (__any_sync(0xffffffffu, rescale[0] != 1 || rescale[1] != 1)) {
#pragma unroll
      for (unsigned i = 0; i < 64; ++i) {
        out[0][i] *= rescale[i / 2 % 2], out[1][i] *= rescale[i / 2 % 2];
      }
    }
    FenceAsyncProxy();
    SynchronizeSome<1, kMultiply>();
    const uint32_t empty = memory + kBarriers + stage * 16 + 8;
    const uint32_t tile = memory + kStage0 + stage * kTileBytes + channels;
    Hold(out[0]);
    Hold(out[1]);
    Hold(scores);
    BeginProducts();
#pragma unroll
    for (unsigned k = 0; k < kRows / 16; ++k) {
      const uint64_t weights = SwizzledRows(memory + kWeights) + k * 2;
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const uint64_t columns = SwizzledColumns(tile, kBlockBytes) +
                                 ((half * 2 * kBlockBytes + k * 16 * 128) >> 4);
        AddColumns(out[half], weights, columns, 1);
        AddColumns(out[half], weights + (kWeightBytes >> 4), columns, 1);
      }
    }
    CommitProducts();
    if (row0 + kRows >= rows) break;
    if (++stage == kStages) stage = 0, parity ^= 1;
    WaitForProducts<0>();
    Hold(out[0]);
    Hold(out[1]);
    if (lane == 0) Arrive(empty);
    begin_scores();
    WaitForProducts<0>();
    Hold(scores);
  }
  WaitForProducts<0>();
  Hold(out[0]);
  Hold(out[1]);
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    if (lane % 4 == 0) StoreFloat(OfHead(memory, group, head0 + 8 * h), sum[h]);
  }
  SynchronizeSome<1, kMultiply>();
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    // In the same order in both warpgroups.
    const float all = LoadFloat(OfHead(memory, 0, head0 + 8 * h)) +
                      LoadFloat(OfHead(memory, 1, head0 + 8 * h));
    const size_t head = first_head + head0 + 8 * h;
    if (head >= a.heads) continue;
    // The sink joins the sum only.
    const float sink = a.sink[head] * kLog2E;
    const float most = fmaxf(top[h], sink);
    const float scaled = PowerOf2(top[h] - most);
    const float factor = scaled / fmaf(all, scaled, PowerOf2(sink - most));
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
  FenceAsyncProxy();
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
