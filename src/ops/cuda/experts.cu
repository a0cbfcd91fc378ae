// Mixture of experts: the slots (token, choice) are grouped by expert, so that
// an expert's weights are read once for all of its tokens; only experts in use
// are read.
#include <algorithm>
#include <type_traits>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/experts_alike.cuh"
#include "ops/cuda/experts_columns.cuh"
#include "ops/cuda/experts_dense.cuh"
#include "ops/cuda/experts_few.cuh"
#include "ops/cuda/experts_ring.cuh"
#include "ops/cuda/experts_some.cuh"
#include "ops/cuda/experts_wide.cuh"
#include "ops/cuda/matmul_side.cuh"

namespace ecphory::cuda {

namespace {

// y = the sum of a token's slots, each rounded, in slot order: a thread kRun
// channels, of rows that are multiples of as many.
template <int kRun>
__global__ void SumKernel(ExpertsArgs a, const float* out) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = (blockIdx.x * size_t{blockDim.x} + threadIdx.x) * kRun;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim;
  using Run = std::conditional_t<kRun == 4, float4, float>;
  union {
    Run run;
    float of[kRun];
  } sum = {}, v, y;
#pragma unroll 4
  for (size_t j = 0; j < a.topk; ++j) {
    v.run = *reinterpret_cast<const Run*>(out + (t * a.topk + j) * a.dim + c);
#pragma unroll
    for (int k = 0; k < kRun; ++k) {
      sum.of[k] += MaybeRound(v.of[k], a.round_bf16);
    }
  }
  Run* const to = reinterpret_cast<Run*>(a.y + i);
  if (a.accumulate) {
    y.run = *to;
#pragma unroll
    for (int k = 0; k < kRun; ++k) sum.of[k] = y.of[k] + sum.of[k];
  }
  *to = sum.run;
}

template <int kRun>
void LaunchSum(const ExpertsArgs& args, const float* out) {
  LaunchOverlapped(SumKernel<kRun>,
                   dim3(Blocks(args.tokens * args.dim / kRun, 256)), 256, 0,
                   "experts: sum", args, out);
}

void LaunchSum(const ExpertsArgs& args, const float* out) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(args.y) |
                         reinterpret_cast<uintptr_t>(out) |
                         args.dim * sizeof(float);
  bits % 16 == 0 ? LaunchSum<4>(args, out) : LaunchSum<1>(args, out);
}

// Whether experts of so many tokens are streamed, by the shape alone beside
// their number: as many as kMaxFewTokens where these share experts only now and
// then.
bool AreStreamed(const ExpertsArgs& args) {
  const bool shared = kMaxFewTokens * args.topk > args.n_experts;
  return args.tokens < (shared ? kFewestSideTokens : kMaxFewTokens + 1);
}

// Whether slots are to be grouped before the products: there are many, or
// tokens share experts.
bool AreGrouped(const ExpertsArgs& args) {
  const size_t slots = args.tokens * args.topk;
  return slots > kFewSlots ||
         (args.tokens > kMaxFewTokens && slots > kFewOfExpert * args.n_experts);
}

// Groups with nothing in them where each block is to group for itself. False
// when there is no memory, which is noted.
bool GroupSlots(const ExpertsArgs& args, Groups& groups) {
  struct Begin;
  struct Slots;
  struct Places;
  struct Refused;
  struct TilesBegin;
  struct Inexact;
  const size_t slots = args.tokens * args.topk;
  groups = {};
  if (!AreGrouped(args)) return true;
  groups = {.begin = Scratch<Begin, int32_t>(args.n_experts + 1),
            .slots = Scratch<Slots, int32_t>(slots),
            .places = Scratch<Places, int32_t>(slots),
            .refused = Scratch<Refused, int32_t>(2),
            .tiles = FitsSharedMemory(kTileExpertsMemory + 1024),
            .wide = slots > kTensOfExpert * args.n_experts &&
                    HasWideExperts(args.n_experts),
            .tile_slots = WideTileSlots(slots, args.n_experts),
            .tiles_begin = Scratch<TilesBegin, int32_t>(args.n_experts + 1),
            .inexact = Scratch<Inexact, int32_t>(2 * args.n_experts)};
  if (groups.begin == nullptr || groups.slots == nullptr ||
      groups.places == nullptr || groups.refused == nullptr ||
      groups.tiles_begin == nullptr || groups.inexact == nullptr) {
    return false;
  }
  const size_t memory = GroupMemory(args.n_experts);
  AllowSharedMemory(GroupKernel, memory, "experts: group");
  LaunchOverlapped(GroupKernel, dim3(1), kGroupThreads, memory,
                   "experts: group", args, groups);
  return true;
}

// One step of a call with groups, `one` of whose experts the host may look at,
// or null: then each way of multiplying finds for itself that it has nothing to
// do.
template <bool kHidden>
void GroupedStep(ExpertsTiles step, const float* in, const Expert* one) {
  const ExpertsArgs& a = step.args;
  const bool wide = step.groups.wide &&
                    (one == nullptr ||
                     IsWideFormat(kHidden ? one->w1.format : one->w2.format));
  if (step.groups.tiles && (!wide || one == nullptr)) {
    LaunchGrouped<kHidden>(step, in);
  }
  if (step.groups.tiles && wide) {
    // Rows of x in the order of the slots, as neighbours.
    if (!PlanTiles(step, a.tokens * a.topk, kHidden ? a.dim : a.inner,
                   a.input == MatmulInput::kBF16 ? 1 : 2)) {
      return;  // noted
    }
    LaunchWideExperts<kHidden>(step, in, one);
  }
  LaunchExperts<kHidden>(
      {.args = step.args, .groups = step.groups, .in = in, .out = step.out});
}

}  // namespace

void Experts(const ExpertsArgs& given, ThreadPool& pool) {
  if (given.tokens == 0) return;
  ExpertsArgs args = given;
  if (args.device_experts != nullptr) args.experts = args.device_experts;
  if (args.topk == 0) {
    return LaunchSum(args, nullptr);
  }
  if (args.topk > kFewSlots) {
    Note(cudaErrorInvalidValue, "experts: more than 512 of a token");
    return;
  }
  const size_t few = kFewSlots / args.topk;
  if (args.tokens > few && !FitsStreamMemory(GroupMemory(args.n_experts))) {
    // Too many experts to count: as many tokens at a time as need no groups.
    for (size_t t = 0; t < args.tokens; t += few) {
      ExpertsArgs some = given;
      some.tokens = std::min(few, args.tokens - t);
      some.x += t * args.dim, some.y += t * args.dim;
      some.ids += t * args.topk, some.weights += t * args.topk;
      Experts(some, pool);
    }
    return;
  }
  struct Hidden;
  struct Out;
  const size_t slots = args.tokens * args.topk;
  float* const hidden = Scratch<Hidden>(slots * args.inner);
  float* const out = Scratch<Out>(slots * args.dim);
  const Expert* const one =
      given.device_experts != nullptr ? given.experts : nullptr;
  if (hidden == nullptr || out == nullptr) return;  // noted
  const bool streamed = AreStreamed(args);
  const bool dense =
      one != nullptr && IsDense(given) && args.tokens <= kSharedDepthTokens;
  if (one != nullptr && slots <= kFewSlots) {
    const bool some = !dense && args.tokens >= kFewestSideTokens;
    if (some && (RunRing(args, given, hidden, out) ||
                 (!streamed && RunColumns(args, given, hidden, out)))) {
      return LaunchSum(args, out);
    }
    if ((streamed || (!dense && args.tokens <= kMaxFewTokens)) &&
        RunAlike(args, given, hidden, out)) {
      return LaunchSum(args, out);
    }
  }
  if (dense) {
    RunDense(args, given, hidden, out, pool);
    return LaunchSum(args, out);
  }
  Groups groups;
  if (!GroupSlots(args, groups)) return;  // noted
  if (groups.begin != nullptr) {
    GroupedStep<true>({.args = args, .groups = groups, .out = hidden}, args.x,
                      one);
    GroupedStep<false>({.args = args, .groups = groups, .out = out}, hidden,
                       one);
  } else {
    LaunchExperts<true>({.args = args, .in = args.x, .out = hidden});
    LaunchExperts<false>({.args = args, .in = hidden, .out = out});
  }
  LaunchSum(args, out);
}

}  // namespace ecphory::cuda
