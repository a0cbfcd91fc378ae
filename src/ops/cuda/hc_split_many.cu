// A split of many tokens of fp32 streams, H = 4, and the expand that is owed.
//
// A cluster of 16 blocks takes 16 tokens after another, each block a sixteenth
// of the channels, whose part of fn stays in its registers: two slabs in each
// of the warps that multiply. Streams come through stages of shared memory,
// ahead, in boxes of 32 channels of all tokens and streams, those of half of
// the warps a stage; expanded ones go back from there. One warp asks for them,
// adds up the sums of the others and sends them to the block that makes a
// token's coefficients, a token of the 16 each, and the squares of the
// collapsed vectors to all; these wait in shared memory while the next tokens
// are multiplied. One more warp makes the factors of the norm and the
// coefficients. All wait for each other at barriers in shared memory only,
// group of tokens by group.
//
// Bound by the warps that multiply. fn comes through the same memory, in rows:
// read straight to registers, 32 bytes of each of eight rows at a time, it took
// 9 us.
#include <cooperative_groups.h>

#include <algorithm>
#include <type_traits>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/tensor_map.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

constexpr unsigned kCluster = kWideParts;
static_assert(kCluster == kTokens);  // each makes a token's coefficients
constexpr unsigned kMaxWarps = 10, kServants = 2;
constexpr size_t kMaxDim = kMaxWarps * kPair * kCluster;
constexpr size_t kDimStep = 2 * kPair * kCluster;  // an even number of warps
// Tokens from which on these clusters win over the ways of few tokens.
constexpr size_t kFewest = 512;

constexpr unsigned kStages = 3;
// Matrices that are balanced at a time, a lane each.
constexpr unsigned kBatch = kWarp;

// A group is so many stages, each has the channels of as many warps.
constexpr unsigned kGroupStages = 2;
// x of a group is written while the one this much later is multiplied: by then
// the other blocks' squares have come.
constexpr unsigned kDelay = 1;
// Groups whose sums may be under way between blocks. A block sends those of a
// group when it has written x of the last but kDelay, for which all blocks have
// sent theirs: none is more than kDelay + 1 groups behind another, and its own
// x and coefficients no more than as many behind that.
constexpr unsigned kSlots = 2 * (kDelay + 1);
constexpr unsigned kBoxChannels = kBoxBytes / sizeof(float);
static_assert(kBoxChannels == kPair);  // a box is what a warp takes
// Rows of x end somewhat later, to have banks of their own.
constexpr unsigned kXPitch = kPair + 4;

// Whether an expand is owed.
template <bool expand>
struct Way {
  static constexpr bool kExpand = expand;
  // Groups whose sums lie in a block, by warp: as memory allows.
  static constexpr unsigned kParts = kExpand ? 1 : 2;
};

// What is owed to a group's streams: y of its channels, rows of which end
// somewhat later as well, and by stage the coefficients of its tokens.
struct Owed {
  float y[kTokens][kMaxWarps * kPair + 8];
  float comb[kStages][kTokens][kStreams * kStreams];
  float post[kStages][kTokens][kStreams];
};
struct Nothing {};

template <typename W>
struct alignas(16) Shared {
  float x[kDelay + 1][kMaxWarps][kTokens][kXPitch];
  float part[W::kParts][kMaxWarps][kTokens][kSums];
  // Up to here fn lies at first, and before, in the last stages.
  // Barriers: fn is there, and in registers; a stage is there, and has been
  // left; its streams are expanded, and y is there; the sums of a block's
  // warps, and taken; those of all blocks, the factors that are made of them,
  // and the coefficients' sums taken.
  uint64_t fn, fn_taken;
  uint64_t full[kStages], left[kStages], expanded[kStages], y;
  uint64_t summed[W::kParts], added[W::kParts];
  uint64_t arrived[kSlots], ready[kSlots], taken[kSlots];
  alignas(16) float sums[kSlots][kCluster][kSums];  // of the block's token
  float squares[kSlots][kCluster][kTokens];         // both by block
  float factor[kSlots][kTokens];
  float m[kSums];
  float comb[kBatch][kStreams * kStreams];
  float own_pre[kStreams];
  float weight[kMaxWarps * kPair];  // the norm's, of its channels
  float pre[kStages][kTokens][kStreams];
  [[no_unique_address]] std::conditional_t<W::kExpand, Owed, Nothing> owed;
};

// A group's place among `kCount`, and the parity of its turn there.
template <unsigned kCount>
struct Turn {
  __device__ explicit Turn(unsigned group)
      : at(group % kCount), parity(group / kCount % 2) {}
  unsigned at, parity;
};

// A box: rows [stream, token] of 128 bytes.
constexpr unsigned kBox = kStreams * kTokens * kBoxBytes;
constexpr size_t kBoxAlignment = 1024;
__host__ __device__ constexpr size_t StageBytes(size_t dim) {
  return dim / kCluster / (kGroupStages * kBoxChannels) * kBox;
}
// Stages, aligned, then Shared.
template <typename W>
constexpr size_t SharedBytes(size_t dim) {
  return kBoxAlignment + kStages * StageBytes(dim) + sizeof(Shared<W>);
}

// fn of a block: rows [stream, output] of its channels, each a little longer,
// to have banks of its own. They take the place of all stages but the first.
template <typename Fn>
__host__ __device__ constexpr size_t FnPitch(size_t dim) {
  return dim / kCluster * sizeof(Fn) + 32;
}
constexpr unsigned kFnRows = kStreams * kOutputs;

constexpr size_t kMostShared = 227 * 1024;  // that a block may have
template <typename W>
constexpr bool LargestFits() {
  const size_t fn = kFnRows * FnPitch<float>(kMaxDim);
  const size_t stages = (kStages - 1) * StageBytes(kMaxDim);
  return SharedBytes<W>(kMaxDim) <= kMostShared &&
         fn <= stages + offsetof(Shared<W>, fn);
}
static_assert(LargestFits<Way<false>>() && LargestFits<Way<true>>());

#if __CUDA_ARCH__ >= 900

// A thread's part of the work.
struct Place {
  __device__ explicit Place(const HcSplitArgs& a)
      : rank(cooperative_groups::this_cluster().block_rank()),
        warp(threadIdx.x / kWarp),
        warps(blockDim.x / kWarp - kServants),
        channels(warps * kPair) {
    // Groups of 16 tokens, shared out evenly among the clusters.
    const size_t all = CeilDiv(a.tokens, kTokens);
    const size_t cluster = blockIdx.x / kCluster;
    const size_t clusters = gridDim.x / kCluster;
    begin = all * cluster / clusters * kTokens;
    end = min(all * (cluster + 1) / clusters * kTokens, a.tokens);
    groups = CeilDiv(end - begin, kTokens);
  }
  __device__ size_t FirstOf(unsigned group) const {
    return begin + group * size_t{kTokens};
  }
  __device__ unsigned TokensOf(size_t first) const {
    return static_cast<unsigned>(min(size_t{kTokens}, end - first));
  }
  // The lane's first of a slab of its warp, of the block.
  __device__ unsigned ChannelOf(int slab) const {
    return warp * kPair + slab * kSlab + 4 * lane.column;
  }
  Lane lane;
  unsigned rank;
  unsigned warp, warps;  // that multiply; the others serve them
  unsigned channels;     // of the block
  size_t begin, end;     // the cluster's tokens
  unsigned groups;
};

// The stages' boxes, and the rest behind them.
template <typename W>
struct Memory {
  __device__ Memory(unsigned char* bytes, size_t dim)
      : stage_bytes(StageBytes(dim)) {
    const uint32_t past = SharedAddress(bytes) % kBoxAlignment;
    boxes = bytes + (past == 0 ? 0 : kBoxAlignment - past);
    shared = reinterpret_cast<Shared<W>*>(boxes + kStages * stage_bytes);
  }
  __device__ unsigned char* Fn() const { return boxes + stage_bytes; }
  size_t stage_bytes;
  unsigned char* boxes;
  Shared<W>* shared;
};

// By the lanes of a warp, before one of them arrives for all.
__device__ void ArriveWarp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ArriveAt(barrier);
}

// --- fn ---------------------------------------------------------------------

// By one warp.
template <typename W, typename Fn>
__device__ void FetchFn(const HcSplitArgs& a, const Place& place,
                        const Memory<W>& memory) {
  const unsigned bytes = place.channels * sizeof(Fn);
  uint64_t* const barrier = &memory.shared->fn;
  if (threadIdx.x % kWarp == 0) ArriveExpecting(barrier, kFnRows * bytes);
  __syncwarp();
  for (unsigned row = threadIdx.x % kWarp; row < kFnRows; row += kWarp) {
    const size_t output = row % kOutputs, stream = row / kOutputs;
    const Fn* const from = reinterpret_cast<const Fn*>(a.fn.data) +
                           (a.fn.first_row + output) * a.fn.cols +
                           stream * a.dim + place.rank * place.channels;
    CopyBulk(memory.Fn() + row * FnPitch<Fn>(a.dim), from, bytes, barrier);
  }
}

__device__ float4 Widened(const float* p) { return Load(p); }
__device__ float4 Widened(const __nv_bfloat16* p) {
  return Load(reinterpret_cast<const uint16_t*>(p));
}
__device__ float4 Widened(const __half* p) {
  const float2 a = __half22float2(reinterpret_cast<const __half2*>(p)[0]);
  const float2 b = __half22float2(reinterpret_cast<const __half2*>(p)[1]);
  return {a.x, a.y, b.x, b.y};
}

// fn of a slab: a lane's four channels of outputs 8n + row.
using SlabFn = float4[kStreams][3];

// A warp's part of fn. When all have theirs, streams and sums may come in its
// place.
template <typename W, typename Fn>
__device__ void TakeFn(const HcSplitArgs& a, const Place& place,
                       const Memory<W>& memory, SlabFn (&fn)[2]) {
  Shared<W>& shared = *memory.shared;
  const size_t pitch = FnPitch<Fn>(a.dim) / sizeof(Fn);
  WaitBarrier(&shared.fn, 0);
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    const Fn* const from = reinterpret_cast<const Fn*>(memory.Fn()) +
                           place.lane.row * pitch + place.ChannelOf(slab);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        fn[slab][s][n] = Widened(from + (s * kOutputs + 8 * n) * pitch);
      }
    }
  }
  ArriveWarp(&shared.fn_taken);
  WaitBarrier(&shared.fn_taken, 0);
}

// --- The warps that multiply ------------------------------------------------

// Where in a stage's boxes four channels of a lane's token i lie.
struct StagePlaces {
  __device__ explicit StagePlaces(const Place& place)
      : first(place.warp % (place.warps / kGroupStages) * kBox +
              place.lane.row * kBoxBytes),
        piece(place.lane.column),
        turn(place.lane.row) {}
  __device__ unsigned Of(int slab, int stream, int i) const {
    constexpr unsigned kPieces = kSlab / 4;  // of 16 bytes
    return first + (stream * kTokens + 8 * i) * kBoxBytes +
           ((slab * kPieces + piece) ^ turn) * 16;
  }
  unsigned first, piece, turn;
};

// The number of the stage of a warp's channels in a group.
__device__ unsigned StageOf(const Place& place, unsigned group) {
  return group * kGroupStages + place.warp * kGroupStages / place.warps;
}

// A warp waits for and leaves all stages, others' as well: of a turn that it
// let pass it could not tell the next.
template <typename W>
__device__ void LeaveStages(unsigned first, unsigned end, Shared<W>& shared) {
  for (unsigned number = first; number < end; ++number) {
    const Turn<kStages> stage(number);
    WaitBarrier(&shared.full[stage.at], stage.parity);
    ArriveWarp(&shared.left[stage.at]);
  }
}

// A warp's channels of a group in its stage, as they are after the expand.
template <typename W>
__device__ void ExpandGroup(const Place& place, unsigned group,
                            const StagePlaces& places,
                            const Memory<W>& memory) {
  Shared<W>& shared = *memory.shared;
  const Owed& owed = shared.owed;
  const Turn<kStages> stage(StageOf(place, group));
  unsigned char* const boxes = memory.boxes + stage.at * memory.stage_bytes;
  WaitBarrier(&shared.full[stage.at], stage.parity);
  WaitBarrier(&shared.y, group % 2);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned token = place.lane.row + 8 * i;
    Coefficients c;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      c.comb[j] = Load(&owed.comb[stage.at][token][j * kStreams]);
    }
    c.post = Load(owed.post[stage.at][token]);
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      const auto at = [&](int s) {
        return reinterpret_cast<float*>(boxes + places.Of(slab, s, i));
      };
      float4 h[kStreams];
#pragma unroll
      for (int s = 0; s < kStreams; ++s) h[s] = Load(at(s));
      Expand<float>(c, Load(&owed.y[token][place.ChannelOf(slab)]), h);
#pragma unroll
      for (int s = 0; s < kStreams; ++s) Store(at(s), h[s]);
    }
  }
  FenceForCopies();
  ArriveWarp(&shared.expanded[stage.at]);
}

// The sums of a slab over a group, and its collapsed tokens.
__device__ void MultiplySlab(const Place& place, int slab, const SlabFn& fn,
                             const unsigned char* boxes,
                             const float (&pre)[kTokens][kStreams],
                             const StagePlaces& places,
                             float (&x)[kTokens][kXPitch], SlabSums& sums) {
  float4 collapsed[2];
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    float4 h[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      h[i] =
          Load(reinterpret_cast<const float*>(boxes + places.Of(slab, s, i)));
      const float of_stream = pre[place.lane.row + 8 * i][s];
      sums.h2[i] = SumOfSquares(h[i], sums.h2[i]);
      collapsed[i] =
          s == 0 ? Times(of_stream, h[i]) : Fma(of_stream, h[i], collapsed[i]);
    }
    sums.Multiply(h[0], h[1], fn[s]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums.x2[i] = SumOfSquares(collapsed[i], sums.x2[i]);
    Store(&x[place.lane.row + 8 * i][place.ChannelOf(slab) % kPair],
          collapsed[i]);
  }
  sums.AddLanes();
}

// The sums of a warp's channels over a group, and its collapsed tokens.
template <typename W>
__device__ void MultiplyGroup(const Place& place, unsigned group,
                              const SlabFn (&fn)[2], const StagePlaces& places,
                              const Memory<W>& memory) {
  Shared<W>& shared = *memory.shared;
  const unsigned number = StageOf(place, group);
  const Turn<kStages> stage(number);
  auto& x = shared.x[group % (kDelay + 1)][place.warp];
  const auto& pre = shared.pre[stage.at];
  const unsigned char* const boxes =
      memory.boxes + stage.at * memory.stage_bytes;
  WaitBarrier(&shared.full[stage.at], stage.parity);
  const Turn<W::kParts> turn(group);
  auto& part = shared.part[turn.at][place.warp];
  const auto put = [&](const SlabSums& sums, auto more) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums.Put<more.value>(place.lane, i, part[place.lane.row + 8 * i]);
    }
  };
  {
    SlabSums sums;
    MultiplySlab(place, 0, fn[0], boxes, pre, places, x, sums);
    if (group >= W::kParts) {
      WaitBarrier(&shared.added[turn.at], turn.parity ^ 1);
    }
    put(sums, std::false_type());
  }
  SlabSums sums;
  MultiplySlab(place, 1, fn[1], boxes, pre, places, x, sums);
  LeaveStages(number, (group + 1) * kGroupStages, shared);
  put(sums, std::true_type());
  ArriveWarp(&shared.summed[turn.at]);
}

// 128 bytes of four tokens at a time.
template <typename W>
__device__ void WriteX(const HcSplitArgs& a, const Place& place, unsigned group,
                       Shared<W>& shared) {
  constexpr unsigned kRowLanes = kPair / 4, kRows = kWarp / kRowLanes;
  const Turn<kSlots> turn(group);
  const auto& x = shared.x[group % (kDelay + 1)][place.warp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned channel = lane % kRowLanes * 4;
  WaitBarrier(&shared.ready[turn.at], turn.parity);
  const float4 weight = Load(&shared.weight[place.warp * kPair + channel]);
  float* const to =
      a.x + place.rank * place.channels + place.warp * kPair + channel;
#pragma unroll
  for (unsigned first = 0; first < kTokens; first += kRows) {
    const unsigned token = first + lane / kRowLanes;
    const float factor = shared.factor[turn.at][token];
    const size_t t = place.FirstOf(group) + token;
    if (t >= place.end) continue;
    __stcs(reinterpret_cast<float4*>(to + t * a.dim),
           Normalised<float>(weight, Load(&x[token][channel]), factor));
  }
}

template <typename W>
__device__ void Multiply(const HcSplitArgs& a, const Place& place,
                         const SlabFn (&fn)[2], const Memory<W>& memory) {
  const StagePlaces places(place);
  for (unsigned group = 0; group < place.groups + kDelay; ++group) {
    if (group < place.groups) {
      LeaveStages(group * kGroupStages, StageOf(place, group), *memory.shared);
      if constexpr (W::kExpand) ExpandGroup(place, group, places, memory);
      MultiplyGroup(place, group, fn, places, memory);
    }
    if (group >= kDelay) WriteX(a, place, group - kDelay, *memory.shared);
  }
}

// --- The warp that fetches and adds -----------------------------------------

// Four sums of a token over the block's warps.
__device__ float4 BlockSums(const Place& place,
                            const float (&part)[kMaxWarps][kTokens][kSums],
                            unsigned token, unsigned quad) {
  float4 sum[2] = {};  // of even and of odd pairs of slabs
#pragma unroll
  for (unsigned w = 0; w < kMaxWarps; ++w) {
    if (w >= place.warps) continue;
    const float4 of_warp = Load(&part[w][token][4 * quad]);
    sum[w % 2] = Plus(sum[w % 2], of_warp);
  }
  return Plus(sum[0], sum[1]);
}

// The first 16 lanes have the last sums of a token each; the others send the
// squares of all to a block each.
template <typename W>
__device__ void SendSquares(const Place& place, float4 sums, unsigned slot,
                            Shared<W>& shared) {
  const unsigned lane = threadIdx.x % kWarp, to = lane % kCluster;
  float x2[kTokens];
#pragma unroll
  for (unsigned t = 0; t < kTokens; ++t) {
    x2[t] = __shfl_sync(0xffffffffu, sums.y, t);
  }
  if (lane < kCluster) return;
  const uint32_t there = PlaceIn(to, shared.squares[slot][place.rank]);
  const uint32_t barrier = PlaceIn(to, &shared.arrived[slot]);
#pragma unroll
  for (unsigned t = 0; t < kTokens; t += 4) {
    SendTo(there + t * sizeof(float), {x2[t], x2[t + 1], x2[t + 2], x2[t + 3]},
           barrier);
  }
}

// Two sums of four a token at a time: all of a token to the block that makes
// its coefficients.
template <typename W>
__device__ void SendSums(const Place& place, unsigned group,
                         Shared<W>& shared) {
  constexpr unsigned kQuads = kSums / 4;
  static_assert(kQuads % 2 == 1 && kCollapsed == 4 * (kQuads - 1) + 1);
  const unsigned slot = group % kSlots;
  const unsigned token = threadIdx.x % kTokens;
  const unsigned half = threadIdx.x % kWarp / kTokens;
  const uint32_t there = PlaceIn(token, shared.sums[slot][place.rank]);
  const uint32_t barrier = PlaceIn(token, &shared.arrived[slot]);
  float4 sums{};
#pragma unroll
  for (unsigned i = 0; i < kQuads; i += 2) {
    const unsigned quad = i + half;
    if (quad >= kQuads) continue;
    sums = BlockSums(place, shared.part[group % W::kParts], token, quad);
    SendTo(there + 4 * quad * sizeof(float), sums, barrier);
  }
  __syncwarp();
  SendSquares(place, sums, slot, shared);
}

// Calls body(box, channel) for the boxes of stage `number` of the cluster's.
template <typename W, typename Body>
__device__ void ForBoxes(const Place& place, unsigned number,
                         const Memory<W>& memory, const Body& body) {
  const unsigned channels = place.channels / kGroupStages;
  const unsigned first =
      place.rank * place.channels + number % kGroupStages * channels;
  unsigned char* box = memory.boxes + number % kStages * memory.stage_bytes;
  for (unsigned c = 0; c < channels; c += kBoxChannels, box += kBox) {
    body(box, first + c);
  }
}

// Stage `number` by one lane. Rows past the last token are
// zeros or another cluster's.
template <typename W>
__device__ void Fill(const HcSplitArgs& a, const CUtensorMap& streams,
                     const Place& place, unsigned number,
                     const Memory<W>& memory) {
  Shared<W>& shared = *memory.shared;
  const unsigned stage = number % kStages;
  uint64_t* const full = &shared.full[stage];
  const size_t first = place.FirstOf(number / kGroupStages);
  // Of the coefficients, by stream.
  const unsigned bytes = place.TokensOf(first) * kStreams * sizeof(float);
  ArriveExpecting(full, static_cast<unsigned>(memory.stage_bytes) +
                            (W::kExpand ? 2 + kStreams : 1) * bytes);
  CopyBulk(shared.pre[stage], a.collapse_pre + first * kStreams, bytes, full);
  if constexpr (W::kExpand) {
    CopyBulk(shared.owed.post[stage], a.last_post + first * kStreams, bytes,
             full);
    CopyBulk(shared.owed.comb[stage], a.last_comb + first * kStreams * kStreams,
             kStreams * bytes, full);
  }
  ForBoxes(place, number, memory, [&](unsigned char* box, unsigned channel) {
    CopyBox(box, streams, channel, static_cast<unsigned>(first), full);
  });
}

// y of a group, by one warp.
template <typename W>
__device__ void FetchY(const HcSplitArgs& a, const Place& place, unsigned group,
                       Shared<W>& shared) {
  const size_t first = place.FirstOf(group);
  const unsigned tokens = place.TokensOf(first), lane = threadIdx.x % kWarp;
  const unsigned bytes = place.channels * sizeof(float);
  if (lane == 0) ArriveExpecting(&shared.y, tokens * bytes);
  __syncwarp();
  if (lane >= tokens) return;
  CopyBulk(shared.owed.y[lane],
           a.y + (first + lane) * a.dim + place.rank * place.channels, bytes,
           &shared.y);
}

// The expanded streams of stage `number` to device memory, by one warp, when
// they are. The stage may be filled when its first lane's copies have been
// read.
template <typename W>
__device__ void WriteStreams(const CUtensorMap& streams, const Place& place,
                             unsigned number, const Memory<W>& memory) {
  const Turn<kStages> stage(number);
  WaitBarrier(&memory.shared->expanded[stage.at], stage.parity);
  if (threadIdx.x % kWarp != 0) return;
  const size_t first = place.FirstOf(number / kGroupStages);
  ForBoxes(place, number, memory,
           [&](const unsigned char* box, unsigned channel) {
             WriteBox(streams, channel, static_cast<unsigned>(first), box);
           });
  CommitWrites();
}

template <typename W>
__device__ void Add(const HcSplitArgs& a, const CUtensorMap& streams,
                    const Place& place, const Memory<W>& memory) {
  constexpr unsigned kBehind = kDelay + 1;
  Shared<W>& shared = *memory.shared;
  const bool first_lane = threadIdx.x % kWarp == 0;
  const unsigned stages = place.groups * kGroupStages;
  unsigned filled = 0;
  // The next stage, when all have left what was there.
  const auto fill = [&] {
    if (filled == stages) return;
    if (filled >= kStages) {
      const Turn<kStages> stage(filled - kStages);
      WaitBarrier(&shared.left[stage.at], stage.parity);
    }
    if (first_lane) {
      if (W::kExpand) WaitUntilWritesRead();
      Fill(a, streams, place, filled, memory);
    }
    __syncwarp();
    ++filled;
  };
  if constexpr (W::kExpand) FetchY(a, place, 0, shared);
  fill();
  WaitBarrier(&shared.fn_taken, 0);  // out of the other stages
  for (unsigned i = 1; i < kStages; ++i) fill();
  for (unsigned group = 0; group < place.groups; ++group) {
    if constexpr (W::kExpand) {
      for (unsigned i = 0; i < kGroupStages; ++i) {
        WriteStreams(streams, place, group * kGroupStages + i, memory);
      }
      if (group + 1 < place.groups) FetchY(a, place, group + 1, shared);
    }
    for (unsigned i = 0; i < kGroupStages; ++i) fill();
    const Turn<W::kParts> part(group);
    WaitBarrier(&shared.summed[part.at], part.parity);
    if (group >= kBehind) {
      const Turn<kSlots> before(group - kBehind);
      WaitBarrier(&shared.taken[before.at], before.parity);
    }
    if (first_lane) {
      constexpr unsigned kBytes = kCluster * (kSums + kTokens) * sizeof(float);
      ArriveExpecting(&shared.arrived[group % kSlots], kBytes);
    }
    SendSums(place, group, shared);
    ArriveWarp(&shared.added[part.at]);
  }
  if (W::kExpand && first_lane) WaitForWrites();
}

// --- The warp that serves ---------------------------------------------------

// Matrices of a batch of groups that ends with `group`, a lane each.
template <typename W>
__device__ void BalanceBatch(const HcSplitArgs& a, const Place& place,
                             unsigned group, Shared<W>& shared) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t t = place.FirstOf(group - group % kBatch + lane) + place.rank;
  if (lane > group % kBatch || t >= place.end) return;
  Sinkhorn(shared.comb[lane], a.sinkhorn_iters, a.hc_eps);
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    Store(a.comb + (t * kStreams + j) * kStreams,
          Load(&shared.comb[lane][j * kStreams]));
  }
}

// The norm's, a lane a token.
template <typename W>
__device__ void MakeFactors(const HcSplitArgs& a, unsigned slot,
                            Shared<W>& shared) {
  const unsigned token = threadIdx.x % kWarp;
  if (token < kTokens) {
    float x2 = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r) {
      x2 += shared.squares[slot][r][token];
    }
    shared.factor[slot][token] =
        1.0f / sqrtf(x2 / static_cast<float>(a.dim) + a.norm_eps);
  }
  ArriveWarp(&shared.ready[slot]);
}

template <typename W>
__device__ void MakeCoefficients(const HcSplitArgs& a, const Place& place,
                                 unsigned group, const Affine& affine,
                                 Shared<W>& shared) {
  const unsigned lane = threadIdx.x % kWarp, slot = group % kSlots;
  if (lane < kSums) {
    float sum = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r) sum += shared.sums[slot][r][lane];
    shared.m[lane] = sum;
  }
  ArriveWarp(&shared.taken[slot]);
  const size_t t = place.FirstOf(group) + place.rank;
  if (t < place.end && lane < kOutputs) {
    StoreOutput(a, t, shared.m, lane, affine, shared.own_pre,
                shared.comb[group % kBatch]);
  }
  __syncwarp();
  if (group % kBatch == kBatch - 1 || group + 1 == place.groups) {
    BalanceBatch(a, place, group, shared);
  }
  __syncwarp();
}

template <typename W>
__device__ void Serve(const HcSplitArgs& a, const Place& place,
                      Shared<W>& shared) {
  const Affine affine(a, threadIdx.x % kWarp);
  for (unsigned group = 0; group < place.groups; ++group) {
    const Turn<kSlots> turn(group);
    WaitForCluster(&shared.arrived[turn.at], turn.parity);
    MakeFactors(a, turn.at, shared);
    MakeCoefficients(a, place, group, affine, shared);
  }
}

template <typename W>
__device__ void InitBarriers(const Place& place, Shared<W>& shared) {
  InitBarrier(&shared.fn, 1);
  InitBarrier(&shared.fn_taken, place.warps);
  InitBarrier(&shared.y, 1);
  for (unsigned i = 0; i < kStages; ++i) {
    InitBarrier(&shared.full[i], 1);
    InitBarrier(&shared.left[i], place.warps);
    InitBarrier(&shared.expanded[i], place.warps / kGroupStages);
  }
  for (unsigned i = 0; i < W::kParts; ++i) {
    InitBarrier(&shared.summed[i], place.warps);
    InitBarrier(&shared.added[i], 1);
  }
  for (unsigned i = 0; i < kSlots; ++i) {
    InitBarrier(&shared.arrived[i], 1);
    InitBarrier(&shared.ready[i], 1);
    InitBarrier(&shared.taken[i], 1);
  }
  FenceBarriers();
}

#endif

template <typename W, typename Fn>
__global__ void __launch_bounds__((kMaxWarps + kServants) * kWarp, 1)
    WideKernel(HcSplitArgs a, const __grid_constant__ CUtensorMap streams) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char bytes[];
  const Memory<W> memory(bytes, a.dim);
  Shared<W>& shared = *memory.shared;
  const auto cluster = cooperative_groups::this_cluster();
  const Place place(a);
  LetNextStart();
  if (threadIdx.x == 0) InitBarriers(place, shared);
  cluster.sync();
  if (place.warp < place.warps) {
    shared.weight[threadIdx.x] =
        a.norm_weight[place.rank * place.channels + threadIdx.x];
    SlabFn fn[2];
    TakeFn<W, Fn>(a, place, memory, fn);
    WaitForEarlier();
    Multiply(a, place, fn, memory);
  } else if (place.warp == place.warps) {
    FetchFn<W, Fn>(a, place, memory);
    WaitForEarlier();
    Add(a, streams, place, memory);
  } else {
    WaitForEarlier();
    Serve(a, place, shared);
  }
  // No block ends while another may still send to it.
  cluster.sync();
#endif
}

// A launch of one cluster.
class Launch {
 public:
  explicit Launch(const HcSplitArgs& args) {
    attributes_[0].id = cudaLaunchAttributeClusterDimension;
    attributes_[0].val.clusterDim.x = kCluster;
    attributes_[0].val.clusterDim.y = attributes_[0].val.clusterDim.z = 1;
    attributes_[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes_[1].val.programmaticStreamSerializationAllowed = 1;
    config_.gridDim = dim3(kCluster);
    const size_t warps = args.dim / (kCluster * kPair) + kServants;
    config_.blockDim = dim3(static_cast<unsigned>(warps * kWarp));
    config_.stream = Current().stream;
    config_.attrs = attributes_;
    config_.numAttrs = 2;
    args.y == nullptr ? Take<Way<false>>(args) : Take<Way<true>>(args);
    AllowSharedMemory(kernel_, config_.dynamicSmemBytes, "hc_split: clusters");
    Note(cudaFuncSetAttribute(
             kernel_, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
         "hc_split: clusters");
  }
  unsigned Places() {
    int places = 0;
    if (cudaOccupancyMaxActiveClusters(&places, kernel_, &config_) !=
        cudaSuccess) {
      (void)cudaGetLastError();
    }
    return static_cast<unsigned>(places);
  }
  void Run(unsigned clusters, const HcSplitArgs& args) {
    config_.gridDim.x *= clusters;
    const CUtensorMap streams =
        MapStreams(args.h, args.tokens, kStreams, args.dim, kTokens);
    Note(cudaLaunchKernelEx(&config_, kernel_, args, streams),
         "hc_split: clusters");
  }

 private:
  template <typename W>
  void Take(const HcSplitArgs& args) {
    switch (args.fn.format) {
      case WeightFormat::kF16: kernel_ = WideKernel<W, __half>; break;
      case WeightFormat::kBF16: kernel_ = WideKernel<W, __nv_bfloat16>; break;
      default: kernel_ = WideKernel<W, float>;
    }
    config_.dynamicSmemBytes = SharedBytes<W>(args.dim);
  }

  void (*kernel_)(HcSplitArgs, CUtensorMap) = nullptr;
  cudaLaunchAttribute attributes_[2] = {};
  cudaLaunchConfig_t config_{};
};

}  // namespace

bool TakesMany(const HcSplitArgs& a) {
  return HasHopperCode() && a.tokens >= kFewest && a.collapse_pre != nullptr &&
         a.dim <= kMaxDim && a.dim % kDimStep == 0 &&
         FitsSharedMemory(SharedBytes<Way<true>>(a.dim)) &&
         Launch(a).Places() > 0;
}

void HcSplitMany(const HcSplitArgs& args) {
  Launch launch(args);
  launch.Run(std::min(Blocks(args.tokens, kTokens), launch.Places()), args);
}

}  // namespace ecphory::cuda
