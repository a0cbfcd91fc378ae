// A thread a channel of a group.
#include "ops/compressor.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

__global__ void Kernel(PoolGroupsArgs args) {
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

void PoolGroups(const PoolGroupsArgs& args, ThreadPool&) {
  const size_t items = args.groups * args.dim;
  if (items == 0) return;
  Kernel<<<Blocks(items, kThreads), kThreads, 0, Current().stream>>>(args);
  NoteLaunch("pool_groups");
}

}  // namespace ecphory::cuda
