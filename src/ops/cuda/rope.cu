// A thread a pair of channels.
#include "ops/rope.h"

#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// The accurate sine and cosine: a position of a million is an angle of as many
// radians in the first pair.
__global__ void Kernel(RopeArgs args) {
  LetNextStart();
  WaitForEarlier();
  const size_t pairs = args.rope_dim / 2;
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= args.tokens * args.heads * pairs) return;
  const size_t pair = i % pairs, row = i / pairs;
  const float position = static_cast<float>(args.positions[row / args.heads]);
  const float angle = __fmul_rn(position, args.inv_freq[pair]);
  float sine, cosine;
  sincosf(args.inverse ? -angle : angle, &sine, &cosine);
  float* const x =
      args.x + row * args.dim + args.dim - args.rope_dim + 2 * pair;
  const float re = x[0], im = x[1];
  x[0] = MaybeRound(re * cosine - im * sine, args.round_bf16);
  x[1] = MaybeRound(re * sine + im * cosine, args.round_bf16);
}

}  // namespace

void Rope(const RopeArgs& args, ThreadPool&) {
  const size_t items = args.tokens * args.heads * (args.rope_dim / 2);
  if (items == 0) return;
  LaunchOverlapped(Kernel, dim3(Blocks(items, kThreads)), kThreads, 0, "rope",
                   args);
}

}  // namespace ecphory::cuda
