// A split of many tokens, H = 4: bound by memory, the streams are read once.
//
// A cluster of 8 blocks takes 64 tokens, each block an eighth of the channels:
// its part of the collapsed vectors, 64 x D / 8, stays in shared memory until
// the cluster has added up the sums of squares, and so do the 24 products.
// A step of a block is 64 channels, 256 bytes of every stream, which come from
// memory at once: pieces of 64 bytes here and there run at a fifth of the
// bandwidth. Warps are 4 groups of 16 tokens by 4 slabs of the step. Streams
// are in registers a step ahead; fn, which every cluster reads once a tile,
// comes through shared memory in two stages, so that warps need not keep step.
// The sums are those of the slabs of hc_split_four.cuh in the same order as
// hc_split_few.cu adds them.
#include <cooperative_groups.h>

#include <algorithm>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_four.cuh"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

constexpr unsigned kCluster = kParts;
constexpr unsigned kTokenWarps = 4, kSlabWarps = kGroup;
constexpr unsigned kTile = kTokenWarps * kTokens;
constexpr unsigned kThreads = kTokenWarps * kSlabWarps * kWarp;
constexpr unsigned kStep = kSlabWarps * kSlab;  // channels
constexpr size_t kMaxDim = 5120;
// Tokens from which on clusters win over hc_split_few.cu.
constexpr size_t kFewest = 512;

constexpr unsigned kSlabFn = kStreams * kOutputs * kSlab;
// Rows of x end half a line later each, or eight rows would share their banks.
constexpr unsigned kPad = 16;

struct Shared {
  float fn[2][kSlabWarps][kSlabFn];
  uint64_t full[2];          // mbarriers: the stage is there
  uint64_t left[2];          // mbarriers: all warps are done with the stage
  float4 pre[kTile];         // of the tile, for its collapse
  float sums[kTile][kSums];  // of this block's channels
  float m[kCluster][kSums];  // of the tokens whose coefficients it makes
  float comb[kCluster][kStreams * kStreams];
  float own_pre[kCluster][kStreams];
  float factor[kTile];
  float x[1];  // [kTile, D / 8 + kPad]
};

size_t SharedBytes(size_t dim) {
  return offsetof(Shared, x) + kTile * (dim / kCluster + kPad) * sizeof(float);
}

#if __CUDA_ARCH__ >= 900

// A thread's part of the work.
struct Place {
  __device__ explicit Place(const HcSplitArgs& a)
      : rank(blockIdx.x % kCluster),
        warp(threadIdx.x / kWarp),
        slab(warp % kSlabWarps),
        channels(static_cast<unsigned>(a.dim) / kCluster),
        steps(channels / kStep),
        token(warp / kSlabWarps * kTokens + lane.row),
        channel(slab * kSlab + 4 * lane.column) {
    // Groups of 16 tokens, shared out evenly among the clusters.
    const size_t groups = CeilDiv(a.tokens, kTokens);
    const size_t cluster = blockIdx.x / kCluster;
    const size_t clusters = gridDim.x / kCluster;
    begin = groups * cluster / clusters * kTokens;
    end = min(groups * (cluster + 1) / clusters * kTokens, a.tokens);
  }
  Lane lane;
  unsigned rank;
  unsigned warp, slab;
  unsigned channels;  // of the block
  unsigned steps;
  unsigned token;     // the lane's first, of the tile
  unsigned channel;   // the lane's first, of the block, in step 0
  size_t begin, end;  // the cluster's tokens
};

// In pieces of 256 bytes from memory; read once, so not kept close by.
__device__ float4 LoadStream(const float* p) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// The streams of a lane's two tokens: where they are, and what was read there.
struct LaneStreams {
  const float* at[2];  // channel of stream 0
  float4 h[2][kStreams];

  // The cluster's last token stands in for those past the end.
  __device__ void MoveTo(const HcSplitArgs& a, const Place& place,
                         size_t first_token) {
    const size_t c = place.rank * place.channels + place.channel;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const size_t t = min(first_token + place.token + 8 * i, place.end - 1);
      at[i] = ValuesOf<float>(a.h) + t * kStreams * a.dim + c;
    }
  }
  __device__ void NextStep() {
#pragma unroll
    for (int i = 0; i < 2; ++i) at[i] += kStep;
  }
  __device__ void Load(size_t dim) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int s = 0; s < kStreams; ++s) h[i][s] = LoadStream(at[i] + s * dim);
    }
  }
};

// In one piece, which the compiler does not find out by itself.
__device__ void StoreShared(float* p, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(SharedAddress(p)),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

// The stages of fn. Steps are counted over all tiles.
struct FnStages {
  const float* fn;  // of the block: [steps, kSlabWarps, kSlabFn]
  unsigned steps;   // of a tile
  Shared& shared;

  // By one thread.
  __device__ void Begin(unsigned all_steps) const {
    for (unsigned stage = 0; stage < 2; ++stage) {
      InitBarrier(&shared.full[stage], 1);
      InitBarrier(&shared.left[stage], kThreads / kWarp);
    }
    FenceBarriers();
    Fill(0);
    if (all_steps > 1) Fill(1);
  }
  __device__ void Fill(unsigned step) const {
    constexpr unsigned kBytes = sizeof(shared.fn[0]);
    uint64_t* const full = &shared.full[step % 2];
    ArriveExpecting(full, kBytes);
    CopyBulk(shared.fn[step % 2], fn + step % steps * (kSlabWarps * kSlabFn),
             kBytes, full);
  }
  // The first thread fills the stage that all have left.
  __device__ void Enter(unsigned step, unsigned all_steps) const {
    if (threadIdx.x == 0 && step >= 1 && step + 1 < all_steps) {
      WaitBarrier(&shared.left[(step - 1) % 2], (step - 1) / 2 % 2);
      Fill(step + 1);
    }
    WaitBarrier(&shared.full[step % 2], step / 2 % 2);
  }
  __device__ void Leave(unsigned step) const {
    __syncwarp();
    if (threadIdx.x % kWarp != 0) return;
    ArriveAt(&shared.left[step % 2]);
  }
};

__device__ void LoadTilePre(const HcSplitArgs& a, const Place& place,
                            size_t first_token, Shared& shared) {
  if (threadIdx.x >= kTile) return;
  const size_t t = min(first_token + threadIdx.x, place.end - 1);
  shared.pre[threadIdx.x] = Load(a.collapse_pre + t * kStreams);
}

// Sums of the lane's two tokens over the slabs of its warp so far.
struct Totals {
  float2 products[3][2] = {};
  float h2[2] = {};
  float x2[2] = {};

  __device__ void Add(const SlabSums& slab) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        const float2 pair = ProductsOf(slab, n, i);
        products[n][i].x += pair.x, products[n][i].y += pair.y;
      }
      h2[i] += slab.h2[i], x2[i] += slab.x2[i];
    }
  }
  __device__ void AddLanes() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      h2[i] = four::AddLanes(h2[i]);
      x2[i] = four::AddLanes(x2[i]);
    }
  }
  // Puts down the sums of token i, or adds them to what is there.
  __device__ void AddTo(const Lane& lane, int i, bool first,
                        float* sums) const {
    float2* const pairs = reinterpret_cast<float2*>(sums) + lane.column;
    const auto add = [&](float2* to, float2 more) {
      const float2 old = first ? float2{} : *to;
      *to = first ? more : float2{old.x + more.x, old.y + more.y};
    };
#pragma unroll
    for (int n = 0; n < 3; ++n) add(pairs + 4 * n, products[n][i]);
    if (lane.column == 0) add(pairs + kSquares / 2, {h2[i], x2[i]});
  }
};

// A lane's two tokens through a step.
__device__ void Step(const Place& place, unsigned step, const float* fn,
                     LaneStreams& streams, Totals& totals, Shared& shared) {
  SlabSums slab;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned token = place.token + 8 * i;
    Coefficients coefficients;
    coefficients.pre = shared.pre[token];
    const float4 x = TokenSlab<float, false>(
        coefficients, float4{}, streams.h[i], &slab.h2[i], &slab.x2[i]);
    StoreShared(shared.x + token * (place.channels + kPad) + step * kStep +
                    place.channel,
                x);
  }
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    float4 weights[3];
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      weights[n] = Load(fn + (s * kOutputs + 8 * n) * kSlab);
    }
    slab.Multiply(streams.h[0][s], streams.h[1][s], weights);
  }
  totals.Add(slab);
}

// The block's sums: those of the slab warps, one after another.
__device__ void AddWarps(const Place& place, Totals& totals, Shared& shared) {
  totals.AddLanes();
  for (unsigned slab = 0; slab < kSlabWarps; ++slab) {
    if (place.slab == slab) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        totals.AddTo(place.lane, i, slab == 0,
                     shared.sums[place.token + 8 * i]);
      }
    }
    __syncthreads();
  }
}

// Sum `o` of a token over the blocks of the cluster.
__device__ float ClusterSum(const Shared& shared, unsigned token, unsigned o) {
  const auto cluster = cooperative_groups::this_cluster();
  float parts[kCluster];
#pragma unroll
  for (unsigned r = 0; r < kCluster; ++r) {
    parts[r] = *cluster.map_shared_rank(&shared.sums[token][o], r);
  }
  float sum = 0;
#pragma unroll
  for (unsigned r = 0; r < kCluster; ++r) sum += parts[r];
  return sum;
}

// The cluster's sums: every block the factors of x of the whole tile, and m of
// the eight tokens whose coefficients it makes, a warp each.
__device__ void ReadSums(const HcSplitArgs& a, const Place& place,
                         Shared& shared) {
  const unsigned o = threadIdx.x % kWarp;
  if (place.warp < kCluster) {
    if (o > kSquares) return;
    shared.m[place.warp][o] =
        ClusterSum(shared, place.rank * kCluster + place.warp, o);
    return;
  }
  const unsigned token = threadIdx.x - kCluster * kWarp;
  if (token >= kTile) return;
  const float x2 = ClusterSum(shared, token, kCollapsed);
  shared.factor[token] =
      1.0f / sqrtf(x2 / static_cast<float>(a.dim) + a.norm_eps);
}

// The first warp makes comb while the others write x.
__device__ void Finish(const HcSplitArgs& a, const Place& place,
                       size_t first_token, Shared& shared) {
  const unsigned lane = threadIdx.x % kWarp;
  const size_t own = first_token + place.rank * kCluster;
  const Affine affine(a, lane);
  if (place.warp < kCluster && lane < kOutputs &&
      own + place.warp < place.end) {
    StoreOutput(a, own + place.warp, shared.m[place.warp], lane, affine,
                shared.own_pre[place.warp], shared.comb[place.warp]);
  }
  __syncthreads();
  if (place.warp == 0) {
    if (lane >= kCluster || own + lane >= place.end) return;
    Sinkhorn(shared.comb[lane], a.sinkhorn_iters, a.hc_eps);
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      Store(a.comb + ((own + lane) * kStreams + j) * kStreams,
            Load(&shared.comb[lane][j * kStreams]));
    }
    return;
  }
  // The same channels of one token after another.
  constexpr unsigned kHeld = kMaxDim / kCluster / (4 * kWarp);
  const float* const weights = a.norm_weight + place.rank * place.channels;
  float4 weight[kHeld];
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) {
    const unsigned c = 4 * (lane + i * kWarp);
    if (c < place.channels) weight[i] = Load(weights + c);
  }
  for (unsigned token = place.warp - 1; token < kTile;
       token += kThreads / kWarp - 1) {
    const size_t t = first_token + token;
    if (t >= place.end) return;
    const float* const from = shared.x + token * (place.channels + kPad);
    float* const to = a.x + t * a.dim + place.rank * place.channels;
#pragma unroll
    for (unsigned i = 0; i < kHeld; ++i) {
      const unsigned c = 4 * (lane + i * kWarp);
      if (c >= place.channels) continue;
      __stcs(
          reinterpret_cast<float4*>(to + c),
          Normalised<float>(weight[i], Load(from + c), shared.factor[token]));
    }
  }
}

#endif

__global__ void __launch_bounds__(kThreads, 1)
    TileKernel(HcSplitArgs a, const float* fn) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const auto cluster = cooperative_groups::this_cluster();
  const Place place(a);
  const FnStages stages{fn + place.rank * place.steps * (kSlabWarps * kSlabFn),
                        place.steps, shared};
  const unsigned all_steps =
      CeilDiv(place.end - place.begin, kTile) * place.steps;
  WaitForEarlier();
  if (threadIdx.x == 0) stages.Begin(all_steps);
  LaneStreams streams;
  streams.MoveTo(a, place, place.begin);
  streams.Load(a.dim);
  LoadTilePre(a, place, place.begin, shared);
  __syncthreads();
  unsigned step = 0;  // over all tiles
  for (size_t first = place.begin; first < place.end; first += kTile) {
    Totals totals;
    for (unsigned i = 0; i < place.steps; ++i, ++step) {
      stages.Enter(step, all_steps);
      const float* const weights = shared.fn[step % 2][place.slab] +
                                   place.lane.row * kSlab +
                                   4 * place.lane.column;
      Step(place, i, weights, streams, totals, shared);
      i + 1 == place.steps ? streams.MoveTo(a, place, first + kTile)
                           : streams.NextStep();
      streams.Load(a.dim);
      stages.Leave(step);
    }
    // The cluster has read the sums of the tile before.
    if (first != place.begin) cluster.barrier_wait();
    AddWarps(place, totals, shared);
    cluster.sync();
    ReadSums(a, place, shared);
    cluster.barrier_arrive();
    LoadTilePre(a, place, first + kTile, shared);
    __syncthreads();
    Finish(a, place, first, shared);
    __syncthreads();
  }
  cluster.barrier_wait();
#endif
}

// fn in the order in which the blocks take it:
// [part, step, slab of the step, stream, output, channel of the slab].
__global__ void __launch_bounds__(256) PackFnKernel(Matrix fn, float* packed) {
  WaitForEarlier();
  const size_t dim = fn.cols / kStreams;
  const size_t i = blockIdx.x * size_t{256} + threadIdx.x;
  if (i >= fn.rows * fn.cols) return;
  const size_t output = i / kSlab % kOutputs;
  const size_t stream = i / (kSlab * kOutputs) % kStreams;
  const size_t slab = i / kSlabFn;
  packed[i] = WeightValue(fn, output, stream * dim + slab * kSlab + i % kSlab);
}

const float* PackFn(const Matrix& fn) {
  struct Packed;
  float* const packed = Scratch<Packed>(fn.rows * fn.cols);
  if (packed == nullptr) return nullptr;
  LaunchOverlapped(PackFnKernel, dim3(Blocks(fn.rows * fn.cols, 256)), 256, 0,
                   "hc_split: fn", fn, packed);
  return packed;
}

}  // namespace

bool TakesMany(const HcSplitArgs& a) {
  return HasHopperCode() && a.tokens >= kFewest && a.collapse_pre != nullptr &&
         a.dim <= kMaxDim && a.dim % (kCluster * kStep) == 0 &&
         FitsSharedMemory(SharedBytes(a.dim));
}

void HcSplitMany(const HcSplitArgs& args) {
  const float* const fn = PackFn(args.fn);
  if (fn == nullptr) return;
  const size_t shared = SharedBytes(args.dim);
  Note(cudaFuncSetAttribute(TileKernel,
                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(shared)),
       "hc_split: tiles");
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kCluster;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = Current().stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  // As many clusters as run at a time: fewer than the multiprocessors suggest,
  // since a cluster lies within one of the device's larger units.
  int places = 1;
  Note(cudaOccupancyMaxActiveClusters(&places, TileKernel, &config),
       "hc_split: tiles");
  config.gridDim.x *= std::min(Blocks(args.tokens, kTile),
                               static_cast<unsigned>(std::max(places, 1)));
  Note(cudaLaunchKernelEx(&config, TileKernel, args, fn), "hc_split: tiles");
}

}  // namespace ecphory::cuda
