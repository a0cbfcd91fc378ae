// A thread a run of channels: decoded once, written to every stream.
#include "ops/embed.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/stream.cuh"
#include "ops/cuda/streams.cuh"
#include "ops/cuda/weight.cuh"

namespace ecphory::cuda {

namespace {

constexpr unsigned kThreads = 256;

template <typename T, unsigned kRun>
__global__ void Kernel(EmbedArgs args) {
  LetNextStart();
  const size_t dim = args.table.cols;
  const size_t i = (blockIdx.x * size_t{kThreads} + threadIdx.x) * kRun;
  if (i >= args.n_tokens * dim) return;
  const size_t token = i / dim, c = i % dim;
  const size_t row = static_cast<size_t>(args.tokens[token]);
  T* const h = ValuesOf<T>(args.h) + token * args.streams * dim + c;
  float values[kRun];
#pragma unroll
  for (unsigned k = 0; k < kRun; ++k) {
    values[k] = WeightValue(args.table, row, c + k);
  }
  for (size_t s = 0; s < args.streams; ++s) {
    if constexpr (kRun == 1) {
      SetStream(h + s * dim, values[0]);
    } else {
#pragma unroll
      for (unsigned k = 0; k < kRun; k += 4) {
        Store(h + s * dim + k,
              {values[k], values[k + 1], values[k + 2], values[k + 3]});
      }
    }
  }
}

template <typename T, unsigned kRun>
void Launch(const EmbedArgs& args) {
  const size_t runs = args.n_tokens * args.table.cols / kRun;
  Kernel<T, kRun>
      <<<Blocks(runs, kThreads), kThreads, 0, Current().stream>>>(args);
  NoteLaunch("embed");
}

}  // namespace

void Embed(const EmbedArgs& args, ThreadPool&) {
  if (args.n_tokens * args.table.cols == 0) return;
  constexpr unsigned kRun = 4;
  const bool runs = args.table.cols % kRun == 0 &&
                    reinterpret_cast<uintptr_t>(args.h.data) % 16 == 0;
  WithStreamType(args.h.format, [&](auto value) {
    using T = decltype(value);
    runs ? Launch<T, kRun>(args) : Launch<T, 1>(args);
  });
}

}  // namespace ecphory::cuda
