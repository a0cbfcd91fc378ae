// Mixture of experts: the slots (token, choice) are grouped by expert, so that
// an expert's weights are read once for all of its tokens; only experts in use
// are read.
#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/experts_alike.cuh"
#include "ops/cuda/experts_few.cuh"
#include "ops/cuda/experts_some.cuh"

namespace ecphory::cuda {

namespace {

// y = the sum of a token's slots, in slot order.
__global__ void SumKernel(ExpertsArgs a, const float* out) {
  LetNextStart();
  WaitForEarlier();
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= a.tokens * a.dim) return;
  const size_t t = i / a.dim, c = i % a.dim;
  float sum = 0;
#pragma unroll 4
  for (size_t j = 0; j < a.topk; ++j) {
    sum += out[(t * a.topk + j) * a.dim + c];
  }
  a.y[i] = a.accumulate ? a.y[i] + sum : sum;
}

void LaunchSum(const ExpertsArgs& args, const float* out) {
  LaunchOverlapped(SumKernel, dim3(Blocks(args.tokens * args.dim, 256)), 256, 0,
                   "experts: sum", args, out);
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
  struct Refused;
  const size_t slots = args.tokens * args.topk;
  groups = {};
  if (!AreGrouped(args)) return true;
  groups = {Scratch<Begin, int32_t>(args.n_experts + 1),
            Scratch<Slots, int32_t>(slots), Scratch<Refused, int32_t>(2),
            FitsSharedMemory(kTileExpertsMemory + 1024)};
  if (groups.begin == nullptr || groups.slots == nullptr ||
      groups.refused == nullptr) {
    return false;
  }
  const size_t memory = GroupMemory(args.n_experts);
  AllowSharedMemory(GroupKernel, memory, "experts: group");
  LaunchOverlapped(GroupKernel, dim3(1), kGroupThreads, memory,
                   "experts: group", args, groups);
  return true;
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
      ExpertsArgs some = args;
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
  Groups groups;
  if (hidden == nullptr || out == nullptr || !GroupSlots(args, groups)) {
    return;  // noted
  }
  const bool seen = given.device_experts != nullptr;
  if (seen && !AreGrouped(args) && RunAlike(args, given, hidden, out)) {
    LaunchSum(args, out);
    return;
  }
  if (groups.tiles) {
    LaunchGrouped<true>({.args = args, .groups = groups, .out = hidden},
                        args.x);
  }
  LaunchExperts<true>(
      {.args = args, .groups = groups, .in = args.x, .out = hidden});
  if (groups.tiles) {
    LaunchGrouped<false>({.args = args, .groups = groups, .out = out}, hidden);
  }
  LaunchExperts<false>(
      {.args = args, .groups = groups, .in = hidden, .out = out});
  LaunchSum(args, out);
}

}  // namespace ecphory::cuda
