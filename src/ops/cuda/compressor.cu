// A thread a channel of a group.
#include "ops/compressor.h"

#include "ops/cuda/calls.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// blockIdx: channels of groups, calls.
template <unsigned kMost>
__global__ void Kernel(
    const __grid_constant__ KernelCalls<PoolGroupsArgs, kMost> calls) {
  LetNextStart();
  WaitForEarlier();
  const PoolGroupsArgs& args = calls[blockIdx.y];
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= args.groups * args.dim) return;
  const size_t c = i % args.dim;
  const uint64_t first = (args.first_group + i / args.dim) * args.ratio;
  const auto at = [&](size_t token) {
    return (first + token) % args.capacity * args.dim + c;
  };
  float top = args.gate[at(0)];
  for (size_t t = 1; t < args.ratio; ++t) top = fmaxf(top, args.gate[at(t)]);
  float weights = 0, sum = 0;
  for (size_t t = 0; t < args.ratio; ++t) {
    const float weight = expf(args.gate[at(t)] - top);
    weights += weight;
    sum += weight * args.kv[at(t)];
  }
  args.latent[i] = sum / weights;
}

}  // namespace

void PoolGroups(const Calls<PoolGroupsArgs>& all, ThreadPool&) {
  ForEachLaunch(all, [&]<unsigned kMost>(
                         const KernelCalls<PoolGroupsArgs, kMost>& of_kernel,
                         std::span<const PoolGroupsArgs> calls) {
    const size_t items = Most(calls, &PoolGroupsArgs::groups) * calls[0].dim;
    if (items == 0) return;
    const dim3 grid(Blocks(items, kThreads),
                    static_cast<unsigned>(calls.size()));
    LaunchOverlapped(Kernel<kMost>, grid, kThreads, 0, "pool_groups",
                     of_kernel);
  });
}

}  // namespace ecphory::cuda
