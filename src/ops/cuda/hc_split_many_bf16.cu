// A split of many tokens of bf16 streams, H = 4: bound by memory, the streams
// are read once.
//
// A cluster of 16 blocks takes 16 tokens after another, each block a sixteenth
// of the channels, whose part of fn stays in its registers: a pair of slabs in
// each of the warps that multiply. Streams come through stages of shared
// memory, ahead, in boxes of 64 channels of all tokens and streams. One warp
// asks for them, adds up the sums of the others and sends them to the block
// that makes a token's coefficients, a token of the 16 each, and the squares of
// the collapsed vectors to all; these wait in shared memory, as bf16, while the
// next tokens are multiplied. One more warp makes the factors of the norm and
// the coefficients. All wait for each other at barriers in shared memory only,
// group of tokens by group.
//
// fn comes through the same memory, in rows: read straight to registers, 32
// bytes of each of eight rows at a time, it took 9 us of 79 (H200).
#include <cooperative_groups.h>

#include <algorithm>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_bf16.cuh"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/tensor_map.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

constexpr unsigned kCluster = kWideParts;
static_assert(kCluster == kTokens);  // each makes a token's coefficients
constexpr unsigned kWarpChannels = 2 * kSlab;
constexpr unsigned kMaxWarps = 10, kServants = 2;
constexpr size_t kMaxDim = kMaxWarps * kWarpChannels * kCluster;
// Tokens from which on clusters win over hc_split_few_bf16.cu.
constexpr size_t kFewest = 512;

constexpr unsigned kStages = 3;
// x of a group is written while the one this much later is multiplied: by then
// the other blocks' squares have come.
constexpr unsigned kDelay = 2;
constexpr unsigned kParts = 2;  // groups whose sums lie in a block, by warp
// Groups whose sums may be under way between blocks. A block sends those of a
// group when it has written x of the last but kDelay, for which all blocks have
// sent theirs: none is more than kDelay + 1 groups behind another, and its own
// x and coefficients no more than as many behind that.
constexpr unsigned kSlots = 2 * (kDelay + 1);
// Matrices that are balanced at a time, a lane each.
constexpr unsigned kBatch = kWarp;

// Rows of x end somewhat later, to have banks of their own.
constexpr unsigned kXPitch = kWarpChannels / 2 + 4;

struct alignas(16) Shared {
  uint32_t x[kDelay + 1][kMaxWarps][kTokens][kXPitch];  // pairs of channels
  float part[kParts][kMaxWarps][kTokens][kSums];
  // Up to here fn lies at first, and before, in the last stages.
  // Barriers: fn is there, and in registers; a stage is there, and has been
  // left; the sums of a block's warps; those of all blocks; the factors that
  // are made of them, and the coefficients' sums taken.
  uint64_t fn, fn_taken;
  uint64_t full[kStages], left[kStages];
  uint64_t summed[kParts], added[kParts];
  uint64_t arrived[kSlots], ready[kSlots], taken[kSlots];
  alignas(16) float sums[kSlots][kCluster]
                        [kSums];  // of the block's token, by block
  float squares[kSlots][kCluster][kTokens];
  float factor[kSlots][kTokens];
  float m[kSums];
  float comb[kBatch][kStreams * kStreams];
  float own_pre[kStreams];
  float weight[kMaxWarps * kWarpChannels];  // the norm's, of its channels
  float pre[kStages][kTokens][kStreams];
};

// A group's place among `kCount`, and the parity of its turn there.
template <unsigned kCount>
struct Turn {
  __device__ explicit Turn(unsigned group)
      : at(group % kCount), parity(group / kCount % 2) {}
  unsigned at, parity;
};

// A stage: boxes of the streams, [stream, token] by 64 channels.
constexpr unsigned kRows = kTokens * kStreams;
constexpr unsigned kBoxChannels = kBoxBytes / sizeof(uint16_t);
constexpr unsigned kBox = kRows * kBoxBytes;
constexpr size_t kBoxAlignment = 1024;
__host__ __device__ constexpr size_t StageBytes(size_t dim) {
  return dim / kCluster / kBoxChannels * kBox;
}
// Stages, aligned, then Shared.
size_t SharedBytes(size_t dim) {
  return kBoxAlignment + kStages * StageBytes(dim) + sizeof(Shared);
}

// fn of a block: rows [stream, output] of its channels, each a little longer,
// to have banks of its own. They take the place of all stages but the first.
template <typename Fn>
__host__ __device__ constexpr size_t FnPitch(size_t dim) {
  return dim / kCluster * sizeof(Fn) + 32;
}
constexpr unsigned kFnRows = kStreams * kOutputs;
static_assert(kFnRows * FnPitch<float>(kMaxDim) <=
              (kStages - 1) * StageBytes(kMaxDim) + offsetof(Shared, fn));

#if __CUDA_ARCH__ >= 900

// A thread's part of the work.
struct Place {
  __device__ explicit Place(const HcSplitArgs& a)
      : rank(cooperative_groups::this_cluster().block_rank()),
        warp(threadIdx.x / kWarp),
        warps(blockDim.x / kWarp - kServants),
        channels(warps * kWarpChannels),
        channel(warp * kWarpChannels + 4 * lane.column) {
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
  Lane lane;
  unsigned rank;
  unsigned warp, warps;  // that multiply; the others serve them
  unsigned channels;     // of the block
  unsigned channel;      // the lane's first, of the block
  size_t begin, end;     // the cluster's tokens
  unsigned groups;
};

// The stages' boxes, and the rest behind them.
struct Memory {
  __device__ Memory(unsigned char* bytes, size_t dim)
      : stage_bytes(StageBytes(dim)) {
    const uint32_t past = SharedAddress(bytes) % kBoxAlignment;
    boxes = bytes + (past == 0 ? 0 : kBoxAlignment - past);
    shared = reinterpret_cast<Shared*>(boxes + kStages * stage_bytes);
  }
  __device__ unsigned char* Fn() const { return boxes + stage_bytes; }
  size_t stage_bytes;
  unsigned char* boxes;
  Shared* shared;
};

// By the lanes of a warp, before one of them arrives for all.
__device__ void ArriveWarp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ArriveAt(barrier);
}

// --- fn ---------------------------------------------------------------------

// By one warp.
template <typename Fn>
__device__ void FetchFn(const HcSplitArgs& a, const Place& place,
                        const Memory& memory) {
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

// A warp's part of it. When all have theirs, streams and sums may come in its
// place.
template <typename Fn>
__device__ void TakeFn(const HcSplitArgs& a, const Place& place,
                       const Memory& memory, SlabFn (&fn)[2]) {
  Shared& shared = *memory.shared;
  const size_t pitch = FnPitch<Fn>(a.dim) / sizeof(Fn);
  const Fn* const row =
      reinterpret_cast<const Fn*>(memory.Fn()) + place.lane.row * pitch;
  WaitBarrier(&shared.fn, 0);
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    fn[slab].Load(
        row + place.warp * kWarpChannels + slab * kSlab + 2 * place.lane.column,
        8 * pitch, kOutputs * pitch);
  }
  ArriveWarp(&shared.fn_taken);
  WaitBarrier(&shared.fn_taken, 0);
}

// --- The warps that multiply ------------------------------------------------

// Where a lane's row of 8 channels lies in a stage, of stream 0: tiles are the
// first and the last 8 tokens by the first and the last 8 channels of a slab.
__device__ unsigned RowPlace(const Place& place, int slab) {
  const unsigned lane = threadIdx.x % kWarp, token = lane % kTokens;
  const unsigned channel = place.warp * kWarpChannels + slab * kSlab;
  const unsigned piece =
      channel % kBoxChannels / 8 + lane / kTokens;  // of 16 bytes
  return channel / kBoxChannels * kBox + token * kBoxBytes +
         (piece ^ token % 8) * 16;
}

// The sums of a warp's channels over a group, and its collapsed tokens.
__device__ void MultiplyGroup(const Place& place, unsigned group,
                              const SlabFn (&fn)[2],
                              const unsigned (&places)[2],
                              const Memory& memory) {
  Shared& shared = *memory.shared;
  const Turn<kStages> stage(group);
  auto& x = shared.x[group % (kDelay + 1)][place.warp];
  WaitBarrier(&shared.full[stage.at], stage.parity);
  float4 pre[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pre[i] = Load(shared.pre[stage.at][place.lane.row + 8 * i]);
  }
  const unsigned char* const boxes =
      memory.boxes + stage.at * memory.stage_bytes;
  PairSums<> sums;
  sums.Of(
      fn, pre,
      [&](int slab, LaneStreams& h) {
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
          LoadTiles(boxes + places[slab] + s * kTokens * kBoxBytes, h[s]);
        }
      },
      [&](int slab, int i, uint2 part) {
        uint32_t* const row =
            x[place.lane.row + 8 * i] + slab * kSlab / 2 + place.lane.column;
        row[0] = part.x, row[4] = part.y;
      });
  ArriveWarp(&shared.left[stage.at]);
  const Turn<kParts> turn(group);
  if (group >= kParts) WaitBarrier(&shared.added[turn.at], turn.parity ^ 1);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums.Put(place.lane, i,
             shared.part[turn.at][place.warp][place.lane.row + 8 * i]);
  }
  ArriveWarp(&shared.summed[turn.at]);
}

__device__ void WriteX(const HcSplitArgs& a, const Place& place, unsigned group,
                       Shared& shared) {
  const Turn<kSlots> turn(group);
  const auto& x = shared.x[group % (kDelay + 1)][place.warp];
  WaitBarrier(&shared.ready[turn.at], turn.parity);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned token = place.lane.row + 8 * i;
    const float factor = shared.factor[turn.at][token];
    const size_t t = place.FirstOf(group) + token;
    if (t >= place.end) continue;
    float* const to =
        a.x + t * a.dim + place.rank * place.channels + place.channel;
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      __stcs(reinterpret_cast<float4*>(to + slab * kSlab),
             Normalised<uint16_t>(
                 Load(&shared.weight[place.channel + slab * kSlab]),
                 Widened(*reinterpret_cast<const uint2*>(
                     &x[token][slab * kSlab / 2 + 2 * place.lane.column])),
                 factor));
    }
  }
}

__device__ void Multiply(const HcSplitArgs& a, const Place& place,
                         const SlabFn (&fn)[2], const Memory& memory) {
  Shared& shared = *memory.shared;
  shared.weight[threadIdx.x] =
      a.norm_weight[place.rank * place.channels + threadIdx.x];
  __syncwarp();
  const unsigned places[2] = {RowPlace(place, 0), RowPlace(place, 1)};
  for (unsigned group = 0; group < place.groups + kDelay; ++group) {
    if (group < place.groups) MultiplyGroup(place, group, fn, places, memory);
    if (group >= kDelay) WriteX(a, place, group - kDelay, shared);
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
    float4& to = sum[w % 2];
    to = {to.x + of_warp.x, to.y + of_warp.y, to.z + of_warp.z,
          to.w + of_warp.w};
  }
  return {sum[0].x + sum[1].x, sum[0].y + sum[1].y, sum[0].z + sum[1].z,
          sum[0].w + sum[1].w};
}

// The first 16 lanes have the last sums of a token each; the others send the
// squares of all to a block each.
__device__ void SendSquares(const Place& place, float4 sums, unsigned slot,
                            Shared& shared) {
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
__device__ void SendSums(const Place& place, unsigned group, Shared& shared) {
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
    sums = BlockSums(place, shared.part[group % kParts], token, quad);
    SendTo(there + 4 * quad * sizeof(float), sums, barrier);
  }
  __syncwarp();
  SendSquares(place, sums, slot, shared);
}

// By one lane. Rows past the last token are zeros or another cluster's.
__device__ void Fill(const HcSplitArgs& a, const CUtensorMap& streams,
                     const Place& place, unsigned group, const Memory& memory) {
  Shared& shared = *memory.shared;
  const unsigned stage = group % kStages;
  uint64_t* const full = &shared.full[stage];
  const size_t first = place.FirstOf(group);
  const unsigned pre_bytes = static_cast<unsigned>(
      min(size_t{kTokens}, place.end - first) * kStreams * sizeof(float));
  ArriveExpecting(full, static_cast<unsigned>(memory.stage_bytes) + pre_bytes);
  CopyBulk(shared.pre[stage], a.collapse_pre + first * kStreams, pre_bytes,
           full);
  unsigned char* box = memory.boxes + stage * memory.stage_bytes;
  for (unsigned c = 0; c < place.channels; c += kBoxChannels, box += kBox) {
    CopyBox(box, streams, place.rank * place.channels + c,
            static_cast<unsigned>(first), full);
  }
}

__device__ void Add(const HcSplitArgs& a, const CUtensorMap& streams,
                    const Place& place, const Memory& memory) {
  constexpr unsigned kBehind = kDelay + 1;
  Shared& shared = *memory.shared;
  const bool first_lane = threadIdx.x % kWarp == 0;
  for (unsigned group = 0; group < min(kStages, place.groups); ++group) {
    if (group == 1) WaitBarrier(&shared.fn_taken, 0);
    if (first_lane) Fill(a, streams, place, group, memory);
    __syncwarp();
  }
  for (unsigned group = 0; group < place.groups; ++group) {
    if (group + kStages < place.groups) {
      const Turn<kStages> stage(group);
      WaitBarrier(&shared.left[stage.at], stage.parity);
      if (first_lane) Fill(a, streams, place, group + kStages, memory);
      __syncwarp();
    }
    const Turn<kParts> part(group);
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
}

// --- The warp that serves ---------------------------------------------------

// Of the norm, a lane a token.
__device__ void MakeFactors(const HcSplitArgs& a, unsigned slot,
                            Shared& shared) {
  const unsigned token = threadIdx.x % kWarp;
  if (token < kTokens) {
    float x2 = 0;
#pragma unroll
    for (unsigned r = 0; r < kCluster; ++r)
      x2 += shared.squares[slot][r][token];
    shared.factor[slot][token] =
        1.0f / sqrtf(x2 / static_cast<float>(a.dim) + a.norm_eps);
  }
  ArriveWarp(&shared.ready[slot]);
}

// Matrices of a batch of groups that ends with `group`, a lane each.
__device__ void BalanceBatch(const HcSplitArgs& a, const Place& place,
                             unsigned group, Shared& shared) {
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

__device__ void MakeCoefficients(const HcSplitArgs& a, const Place& place,
                                 unsigned group, const Affine& affine,
                                 Shared& shared) {
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

__device__ void Serve(const HcSplitArgs& a, const Place& place,
                      Shared& shared) {
  const Affine affine(a, threadIdx.x % kWarp);
  for (unsigned group = 0; group < place.groups; ++group) {
    const Turn<kSlots> turn(group);
    WaitForCluster(&shared.arrived[turn.at], turn.parity);
    MakeFactors(a, turn.at, shared);
    MakeCoefficients(a, place, group, affine, shared);
  }
}

__device__ void InitBarriers(const Place& place, Shared& shared) {
  InitBarrier(&shared.fn, 1);
  InitBarrier(&shared.fn_taken, place.warps);
  for (unsigned i = 0; i < kStages; ++i) {
    InitBarrier(&shared.full[i], 1);
    InitBarrier(&shared.left[i], place.warps);
  }
  for (unsigned i = 0; i < kParts; ++i) {
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

template <typename Fn>
__global__ void __launch_bounds__((kMaxWarps + kServants) * kWarp, 1)
    WideKernel(HcSplitArgs a, const __grid_constant__ CUtensorMap streams) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char bytes[];
  const Memory memory(bytes, a.dim);
  Shared& shared = *memory.shared;
  const auto cluster = cooperative_groups::this_cluster();
  const Place place(a);
  if (threadIdx.x == 0) InitBarriers(place, shared);
  cluster.sync();
  if (place.warp < place.warps) {
    SlabFn fn[2];
    TakeFn<Fn>(a, place, memory, fn);
    WaitForEarlier();
    Multiply(a, place, fn, memory);
  } else if (place.warp == place.warps) {
    FetchFn<Fn>(a, place, memory);
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

auto KernelOf(WeightFormat fn) {
  switch (fn) {
    case WeightFormat::kF16: return WideKernel<__half>;
    case WeightFormat::kBF16: return WideKernel<__nv_bfloat16>;
    default: return WideKernel<float>;
  }
}

// A launch of one cluster.
class Launch {
 public:
  explicit Launch(const HcSplitArgs& args) : kernel_(KernelOf(args.fn.format)) {
    attributes_[0].id = cudaLaunchAttributeClusterDimension;
    attributes_[0].val.clusterDim.x = kCluster;
    attributes_[0].val.clusterDim.y = attributes_[0].val.clusterDim.z = 1;
    attributes_[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes_[1].val.programmaticStreamSerializationAllowed = 1;
    config_.gridDim = dim3(kCluster);
    const size_t warps = args.dim / (kCluster * kWarpChannels) + kServants;
    config_.blockDim = dim3(static_cast<unsigned>(warps * kWarp));
    config_.dynamicSmemBytes = SharedBytes(args.dim);
    config_.stream = Current().stream;
    config_.attrs = attributes_;
    config_.numAttrs = 2;
    AllowSharedMemory(kernel_, config_.dynamicSmemBytes, "hc_split: clusters");
    Note(cudaFuncSetAttribute(
             kernel_, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
         "hc_split: clusters");
  }
  // Clusters that run at a time: fewer than the multiprocessors suggest, since
  // a cluster lies within one of the device's larger units, and perhaps none.
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
  void (*kernel_)(HcSplitArgs, CUtensorMap);
  cudaLaunchAttribute attributes_[2] = {};
  cudaLaunchConfig_t config_{};
};

}  // namespace

bool TakesManyBf16(const HcSplitArgs& a) {
  return HasHopperCode() && a.tokens >= kFewest && a.collapse_pre != nullptr &&
         a.dim <= kMaxDim && a.dim % (kCluster * kBoxChannels) == 0 &&
         FitsSharedMemory(SharedBytes(a.dim)) && Launch(a).Places() > 0;
}

void HcSplitManyBf16(const HcSplitArgs& args) {
  Launch launch(args);
  launch.Run(std::min(Blocks(args.tokens, kTokens), launch.Places()), args);
}

}  // namespace ecphory::cuda
