// A thread a channel: decoded once, written to every stream.
#include "ops/embed.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/streams.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <typename T>
__global__ void Kernel(EmbedArgs args) {
  LetNextStart();
  const size_t dim = args.table.cols;
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= args.n_tokens * dim) return;
  const size_t token = i / dim, c = i % dim;
  const size_t row = static_cast<size_t>(args.tokens[token]);
  const float value = WeightValue(args.table, row, c);
  T* const h = ValuesOf<T>(args.h) + token * args.streams * dim + c;
  for (size_t s = 0; s < args.streams; ++s) SetStream(h + s * dim, value);
}

}  // namespace

void Embed(const EmbedArgs& args, ThreadPool&) {
  const size_t items = args.n_tokens * args.table.cols;
  if (items == 0) return;
  WithStreamType(args.h.format, [&](auto value) {
    Kernel<decltype(value)>
        <<<Blocks(items, kThreads), kThreads, 0, Current().stream>>>(args);
    NoteLaunch("embed");
  });
}

}  // namespace ecphory::cuda
