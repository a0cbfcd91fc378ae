// A thread a pair of channels of some heads of a token, which have one angle.
#include "ops/rope.h"

#include "ops/cuda/codec.cuh"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

// Heads of a thread, where there are enough for all multiprocessors.
constexpr unsigned kManyHeads = 8;
constexpr size_t kManyPairs = size_t{1} << 17;

// The accurate sine and cosine: a position of a million is an angle of as many
// radians in the first pair.
template <unsigned kHeads>
__global__ void Kernel(RopeArgs args) {
  LetNextStart();
  WaitForEarlier();
  const size_t pairs = args.rope_dim / 2;
  const size_t groups = CeilDiv(args.heads, kHeads);
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= args.tokens * groups * pairs) return;
  const size_t pair = i % pairs, group = i / pairs;
  const size_t token = group / groups, head0 = group % groups * kHeads;
  float* const x = args.x + (token * args.heads + head0) * args.dim + args.dim -
                   args.rope_dim + 2 * pair;
  float re[kHeads], im[kHeads];
#pragma unroll
  for (unsigned h = 0; h < kHeads; ++h) {
    if (head0 + h >= args.heads) break;
    re[h] = x[h * args.dim], im[h] = x[h * args.dim + 1];
  }
  const float position = static_cast<float>(args.positions[token]);
  const float angle = __fmul_rn(position, args.inv_freq[pair]);
  float sine, cosine;
  sincosf(args.inverse ? -angle : angle, &sine, &cosine);
#pragma unroll
  for (unsigned h = 0; h < kHeads; ++h) {
    if (head0 + h >= args.heads) break;
    x[h * args.dim] =
        MaybeRound(re[h] * cosine - im[h] * sine, args.round_bf16);
    x[h * args.dim + 1] =
        MaybeRound(re[h] * sine + im[h] * cosine, args.round_bf16);
  }
}

template <unsigned kHeads>
void Launch(const RopeArgs& args) {
  const size_t items =
      args.tokens * CeilDiv(args.heads, kHeads) * (args.rope_dim / 2);
  if (items == 0) return;
  LaunchOverlapped(Kernel<kHeads>, dim3(Blocks(items, kThreads)), kThreads, 0,
                   "rope", args);
}

}  // namespace

void Rope(const RopeArgs& args, ThreadPool&) {
  const size_t pairs = args.tokens * args.heads * (args.rope_dim / 2);
  pairs < kManyPairs ? Launch<1>(args) : Launch<kManyHeads>(args);
}

}  // namespace ecphory::cuda
