// A split of many tokens of fp32 streams, H = 4, and the expand that is owed:
// bound by the warps that multiply.
#include <type_traits>

#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_many.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

constexpr unsigned kGroupStages = 2;
// With an expand, memory allows the sums of one group, and fn the place of all
// stages but the first.
template <bool expand>
using Way = ManyWay<float, expand, kGroupStages, /*early=*/expand ? 1 : 2,
                    /*delay=*/1, /*parts=*/expand ? 1 : 2>;
static_assert(SharedBytes<Way<false>>(kMaxManyDim) <= kMostShared &&
              SharedBytes<Way<true>>(kMaxManyDim) <= kMostShared);
static_assert(kBoxBytes / sizeof(float) == kPair);  // a column: what a warp has

#if __CUDA_ARCH__ >= 900

__device__ float4 Widened(const float* p) { return Load(p); }
__device__ float4 Widened(const __nv_bfloat16* p) {
  return Load(reinterpret_cast<const uint16_t*>(p));
}
__device__ float4 Widened(const __half* p) {
  const float2 a = __half22float2(reinterpret_cast<const __half2*>(p)[0]);
  const float2 b = __half22float2(reinterpret_cast<const __half2*>(p)[1]);
  return {a.x, a.y, b.x, b.y};
}

// The lane's first channel of a slab of its warp, of the block.
__device__ unsigned ChannelOf(const Place& place, int slab) {
  return place.warp * kPair + slab * kSlab + 4 * place.lane.column;
}

// fn of a slab: a lane's four channels of outputs 8n + row.
using SlabFn = float4[kStreams][3];

template <typename Fn, typename W>
__device__ void LoadFn(const Place& place, const Memory<W>& memory,
                       SlabFn (&fn)[2]) {
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    const Fn* const from =
        memory.template FnOf<Fn>(place.lane.row, ChannelOf(place, slab));
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        fn[slab][s][n] = Widened(from + (s * kOutputs + 8 * n) * kFnRow<Fn>);
      }
    }
  }
}

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
__device__ void LeaveStages(unsigned first, unsigned end,
                            ManyShared<W>& shared) {
  for (unsigned number = first; number < end; ++number) {
    const Turn<kStages> stage(number);
    WaitForPhase(&shared.full[stage.at], stage.parity);
    ArriveAsOne(&shared.left[stage.at]);
  }
}

// A warp's channels of a group in its stage, as they are after the expand.
template <typename W>
__device__ void ExpandGroup(const Place& place, unsigned group,
                            const StagePlaces& places,
                            const Memory<W>& memory) {
  ManyShared<W>& shared = *memory.shared;
  const Owed& owed = shared.owed;
  const Turn<kStages> stage(StageOf(place, group));
  unsigned char* const boxes = memory.Box(stage.at);
  WaitForPhase(&shared.full[stage.at], stage.parity);
  WaitForPhase(&shared.owed.there, group % 2);
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
      Expand<float>(c, Load(&owed.y[token][ChannelOf(place, slab)]), h);
#pragma unroll
      for (int s = 0; s < kStreams; ++s) Store(at(s), h[s]);
    }
  }
  FenceAsyncProxy();
  ArriveAsOne(&shared.owed.expanded[stage.at]);
}

// The sums of a slab over a group, and its collapsed tokens.
__device__ void MultiplySlab(const Place& place, int slab, const SlabFn& fn,
                             const unsigned char* boxes,
                             const float (&pre)[kTokens][kStreams],
                             const StagePlaces& places,
                             float (&x)[kTokens][Way<false>::kXPitch],
                             SlabSums& sums) {
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
    Store(&x[place.lane.row + 8 * i][ChannelOf(place, slab) % kPair],
          collapsed[i]);
  }
  sums.AddLanes();
}

// The sums of a warp's channels over a group, and its collapsed tokens.
template <typename W>
__device__ void MultiplyGroup(const Place& place, unsigned group,
                              const SlabFn (&fn)[2], const StagePlaces& places,
                              const Memory<W>& memory) {
  ManyShared<W>& shared = *memory.shared;
  const unsigned number = StageOf(place, group);
  const Turn<kStages> stage(number);
  auto& x = shared.x[group % (W::kDelay + 1)][place.warp];
  const auto& pre = shared.pre[stage.at];
  const unsigned char* const boxes = memory.Box(stage.at);
  WaitForPhase(&shared.full[stage.at], stage.parity);
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
      WaitForPhase(&shared.added[turn.at], turn.parity ^ 1);
    }
    put(sums, std::false_type());
  }
  SlabSums sums;
  MultiplySlab(place, 1, fn[1], boxes, pre, places, x, sums);
  LeaveStages(number, (group + 1) * kGroupStages, shared);
  put(sums, std::true_type());
  ArriveAsOne(&shared.summed[turn.at]);
}

template <typename W>
__device__ void Multiply(const HcSplitArgs& a, const Place& place,
                         const SlabFn (&fn)[2], const Memory<W>& memory) {
  const StagePlaces places(place);
  for (unsigned group = 0; group < place.groups + W::kDelay; ++group) {
    if (group < place.groups) {
      LeaveStages(group * kGroupStages, StageOf(place, group), *memory.shared);
      if constexpr (W::kExpand) ExpandGroup(place, group, places, memory);
      MultiplyGroup(place, group, fn, places, memory);
    }
    if (group >= W::kDelay) {
      WriteX(a, place, group - W::kDelay, *memory.shared);
    }
  }
}

#endif

template <typename W, typename Fn>
__global__ void __launch_bounds__((kMaxWarps + kServants) * kWarp, 1)
    ManyKernel(HcSplitArgs a, const __grid_constant__ CUtensorMap streams,
               const __grid_constant__ CUtensorMap fn_map) {
#if __CUDA_ARCH__ >= 900
  LetNextStart();
  SplitMany<W, Fn>(a, streams, fn_map,
                   [&](const Place& place, const Memory<W>& memory) {
                     SlabFn fn[2];
                     TakeFn(a, place, *memory.shared,
                            [&] { LoadFn<Fn>(place, memory, fn); });
                     WaitForEarlier();
                     Multiply(a, place, fn, memory);
                   });
#endif
}

template <typename W>
SplitKernel KernelOf(WeightFormat fn) {
  switch (fn) {
    case WeightFormat::kF16: return ManyKernel<W, __half>;
    case WeightFormat::kBF16: return ManyKernel<W, __nv_bfloat16>;
    default: return ManyKernel<W, float>;
  }
}

template <typename W>
bool Takes(const HcSplitArgs& a) {
  return TakesMany<W>(KernelOf<W>(a.fn.format), a);
}
template <typename W>
void Run(const HcSplitArgs& a) {
  ManyLaunch<W>(KernelOf<W>(a.fn.format), a).Run(a);
}

}  // namespace

bool TakesMany(const HcSplitArgs& a) {
  return a.y == nullptr ? Takes<Way<false>>(a) : Takes<Way<true>>(a);
}

void HcSplitMany(const HcSplitArgs& a) {
  a.y == nullptr ? Run<Way<false>>(a) : Run<Way<true>>(a);
}

}  // namespace ecphory::cuda
