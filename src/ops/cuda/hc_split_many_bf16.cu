// A split of many tokens of bf16 streams, H = 4: the streams are read once, and
// move at 0.89 of the rate at which an H200 copies. Bound by the warps that
// multiply, of which three share a tensor core, and the way to and from them.
#include "ops/cuda/hc_split.cuh"
#include "ops/cuda/hc_split_bf16.cuh"
#include "ops/cuda/hc_split_many.cuh"

namespace ecphory::cuda {

namespace {

using namespace four;

using Way = ManyWay<uint16_t, /*expand=*/false, /*group_stages=*/1, /*early=*/2,
                    /*delay=*/2, /*parts=*/2>;
static_assert(SharedBytes<Way>(kMaxManyDim) <= kMostShared);

#if __CUDA_ARCH__ >= 900

template <typename Fn>
__device__ void LoadFn(const Place& place, const Memory<Way>& memory,
                       SlabFn (&fn)[2]) {
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    const unsigned channel =
        place.warp * kPair + slab * kSlab + 2 * place.lane.column;
    fn[slab].Load(memory.FnOf<Fn>(place.lane.row, channel),
                  memory.FnOf<Fn>(place.lane.row, channel + 8), 8 * kFnRow<Fn>,
                  kOutputs * kFnRow<Fn>);
  }
}

// Where a lane's row of 8 channels lies in a stage, of stream 0: tiles are the
// first and the last 8 tokens by the first and the last 8 channels of a slab.
__device__ unsigned RowPlace(const Place& place, int slab) {
  constexpr unsigned kBoxChannels = kBoxBytes / sizeof(uint16_t);
  const unsigned lane = threadIdx.x % kWarp, token = lane % kTokens;
  const unsigned channel = place.warp * kPair + slab * kSlab;
  const unsigned piece =
      channel % kBoxChannels / 8 + lane / kTokens;  // of 16 bytes
  return channel / kBoxChannels * kBox + token * kBoxBytes +
         (piece ^ token % 8) * 16;
}

// The sums of a warp's channels over a group, and its collapsed tokens.
__device__ void MultiplyGroup(const Place& place, unsigned group,
                              const SlabFn (&fn)[2],
                              const unsigned (&places)[2],
                              const Memory<Way>& memory) {
  ManyShared<Way>& shared = *memory.shared;
  const Turn<kStages> stage(group);
  auto& x = shared.x[group % (Way::kDelay + 1)][place.warp];
  WaitForPhase(&shared.full[stage.at], stage.parity);
  float4 pre[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pre[i] = Load(shared.pre[stage.at][place.lane.row + 8 * i]);
  }
  const unsigned char* const box = memory.Box(stage.at);
  PairSums<> sums;
  sums.Of(
      fn, pre,
      [&](int slab, LaneStreams& h) {
#pragma unroll
        for (int s = 0; s < kStreams; ++s) {
          LoadMatrices(h[s], box + places[slab] + s * kTokens * kBoxBytes);
        }
      },
      [&](int slab, int i, uint2 part) {
        StoreLane(
            x[place.lane.row + 8 * i] + slab * kSlab + 2 * place.lane.column,
            part);
      });
  ArriveAsOne(&shared.left[stage.at]);
  const Turn<Way::kParts> turn(group);
  if (group >= Way::kParts) {
    WaitForPhase(&shared.added[turn.at], turn.parity ^ 1);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums.Put(place.lane, i,
             shared.part[turn.at][place.warp][place.lane.row + 8 * i]);
  }
  ArriveAsOne(&shared.summed[turn.at]);
}

#endif

template <typename Fn>
__global__ void __launch_bounds__((kMaxWarps + kServants) * kWarp, 1)
    ManyKernel(HcSplitArgs a, const __grid_constant__ CUtensorMap streams,
               const __grid_constant__ CUtensorMap fn_map) {
#if __CUDA_ARCH__ >= 900
  SplitMany<Way, Fn>(
      a, streams, fn_map, [&](const Place& place, const Memory<Way>& memory) {
        SlabFn fn[2];
        TakeFn(a, place, *memory.shared,
               [&] { LoadFn<Fn>(place, memory, fn); });
        WaitForEarlier();
        const unsigned places[2] = {RowPlace(place, 0), RowPlace(place, 1)};
        for (unsigned group = 0; group < place.groups + Way::kDelay; ++group) {
          if (group < place.groups) {
            MultiplyGroup(place, group, fn, places, memory);
          }
          if (group >= Way::kDelay) {
            WriteX(a, place, group - Way::kDelay, *memory.shared);
          }
        }
      });
#endif
}

SplitKernel KernelOf(WeightFormat fn) {
  switch (fn) {
    case WeightFormat::kF16: return ManyKernel<__half>;
    case WeightFormat::kBF16: return ManyKernel<__nv_bfloat16>;
    default: return ManyKernel<float>;
  }
}

}  // namespace

bool TakesManyBf16(const HcSplitArgs& a) {
  return TakesMany<Way>(KernelOf(a.fn.format), a);
}

void HcSplitManyBf16(const HcSplitArgs& a) {
  ManyLaunch<Way>(KernelOf(a.fn.format), a).Run(a);
}

}  // namespace ecphory::cuda
