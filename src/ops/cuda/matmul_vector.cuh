// y = x W^T for up to eight tokens with FP8, FP4 and Q8_0 weights, by blocks of
// rows (ops/cuda/vector_rows.cuh). A block takes half of a multiprocessor, so
// that the next launch's weights arrive while this one ends.
#pragma once

#include <algorithm>

#include "ops/cuda/matmul_few.cuh"
#include "ops/cuda/matmul_stream.cuh"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/vector_rows.cuh"

namespace ecphory::cuda {

// One of the products of a launch; all have the same number of tokens.
struct VectorProduct {
  Matrix weight;
  const float* x;
  float* y;
  size_t x_stride;
  size_t y_stride;
  unsigned first_block, blocks;  // of the grid
  bool round_bf16;
};

inline constexpr int kMostVectorProducts = 8;
struct VectorArgs {
  VectorProduct of[kMostVectorProducts];
  int count;
  int tokens;
  int slots;  // as in VectorShape
};

__host__ __device__ inline VectorShape ShapeOf(const VectorProduct& p,
                                               int tokens, int slots) {
  return {.cols = static_cast<int>(p.weight.cols),
          .rows = static_cast<int>((p.weight.rows + p.blocks - 1) / p.blocks),
          .tokens = tokens,
          .slots = slots};
}

template <WeightFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kVectorThreads, kTokens <= 2 ? 2 : 1)
    VectorKernel(const __grid_constant__ VectorArgs a) {
  extern __shared__ uint4 vector_memory[];
  __shared__ int bad[VectorBlock<kFormat, kTokens>::kFlags];
  LetNextStart();
  int product = 0;
  while (product + 1 < a.count && a.of[product + 1].first_block <= blockIdx.x) {
    ++product;
  }
  const VectorProduct& p = a.of[product];
  const Matrix& m = p.weight;
  const int tokens = kTokens == 1 ? 1 : a.tokens;
  const size_t index = blockIdx.x - p.first_block;
  const size_t begin = m.rows * index / p.blocks;
  const size_t end = m.rows * (index + 1) / p.blocks;
  VectorBlock<kFormat, kTokens> block(
      m, begin, static_cast<int>(end - begin), ShapeOf(p, tokens, a.slots),
      reinterpret_cast<uint8_t*>(vector_memory), bad);
  WaitForEarlier();
  const auto row_of = [&p](int token) { return p.x + token * p.x_stride; };
  block.Split(tokens, row_of);
  block.Multiply(tokens);
  block.Finish(tokens, row_of, [&p, begin](int token, int row, float sum) {
    p.y[token * p.y_stride + begin + row] = MaybeRound(sum, p.round_bf16);
  });
}

template <WeightFormat kFormat>
size_t VectorMemory(const VectorArgs& args) {
  int most = 0;
  for (int i = 0; i < args.count; ++i) {
    most = std::max(most, VectorLayout<kFormat>(
                              ShapeOf(args.of[i], args.tokens, args.slots))
                              .bytes);
  }
  return static_cast<size_t>(most);
}

// Shares out `blocks` blocks so that the busiest has the fewest bytes. Returns
// how many there are then.
template <WeightFormat kFormat>
unsigned ShareBlocks(VectorArgs& args, size_t blocks) {
  const auto bytes_of = [&](int i) {
    return args.of[i].weight.rows * args.of[i].weight.row_bytes();
  };
  size_t low = 1, high = 1;
  for (int i = 0; i < args.count; ++i) high = std::max(high, bytes_of(i));
  while (low < high) {
    const size_t middle = (low + high) / 2;
    size_t needed = 0;
    for (int i = 0; i < args.count; ++i) needed += CeilDiv(bytes_of(i), middle);
    needed <= blocks ? high = middle : low = middle + 1;
  }
  unsigned first = 0;
  for (int i = 0; i < args.count; ++i) {
    VectorProduct& p = args.of[i];
    p.first_block = first;
    p.blocks = static_cast<unsigned>(
        std::min(CeilDiv(bytes_of(i), low), p.weight.rows));
    first += p.blocks;
  }
  return first;
}

template <WeightFormat kFormat>
bool CanVector(const Matrix& m, const float* x, size_t x_stride) {
  using F = VectorFormat<kFormat>;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(m.data) |
                         static_cast<uintptr_t>(m.row_bytes());
  const VectorProduct p{.weight = m, .blocks = 1u << 30};
  return m.cols % F::kAligned == 0 && bits % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x) % 16 == 0 && x_stride % 4 == 0 &&
         FitsStreamMemory(
             VectorLayout<kFormat>(ShapeOf(p, 1, kFewestSlots)).bytes);
}

template <WeightFormat kFormat, int kTokens>
void LaunchVector(const VectorArgs& args, unsigned blocks, size_t shared) {
  constexpr auto kKernel = VectorKernel<kFormat, kTokens>;
  AllowSharedMemory(kKernel, shared, "matmul");
  LaunchOverlapped(kKernel, dim3(blocks), kVectorThreads, shared, "matmul",
                   args);
}

// CanVector() says of each product that it can.
template <WeightFormat kFormat>
void RunVector(VectorArgs args, size_t tokens) {
  args.tokens = 1;
  const size_t wave = static_cast<size_t>(Multiprocessors());
  const auto bytes = [&] { return VectorMemory<kFormat>(args); };
  // A block a multiprocessor, or several where its rows would take more memory
  // than two can have; or than one can have, where x takes so much.
  const size_t half = HalfSharedMemory();
  args.slots = kFewestSlots;
  size_t waves = 1;
  unsigned blocks = ShareBlocks<kFormat>(args, wave);
  while (bytes() > half && waves < 16) {
    blocks = ShareBlocks<kFormat>(args, (waves *= 2) * wave);
  }
  if (bytes() > half) {
    waves = 1, blocks = ShareBlocks<kFormat>(args, wave);
    while (!FitsStreamMemory(bytes())) {
      blocks = ShareBlocks<kFormat>(args, (waves *= 2) * wave);
    }
  }
  while (tokens > 0) {
    size_t some = std::min(tokens, kMaxFewTokens);
    args.tokens = static_cast<int>(some), args.slots = kFewestSlots;
    while (!FitsStreamMemory(bytes())) --args.tokens;
    some = static_cast<size_t>(args.tokens);
    const bool shares = bytes() <= half;
    args.slots = kMostSlots;
    if (shares ? bytes() > half : !FitsStreamMemory(bytes())) {
      args.slots = kFewestSlots;
    }
    const size_t shared = bytes();
    if (some == 1) {
      LaunchVector<kFormat, 1>(args, blocks, shared);
    } else if (some == 2) {
      LaunchVector<kFormat, 2>(args, blocks, shared);
    } else if (some <= 4) {
      LaunchVector<kFormat, 4>(args, blocks, shared);
    } else {
      LaunchVector<kFormat, 8>(args, blocks, shared);
    }
    tokens -= some;
    for (int i = 0; i < args.count; ++i) {
      args.of[i].x += some * args.of[i].x_stride;
      args.of[i].y += some * args.of[i].y_stride;
    }
  }
}

}  // namespace ecphory::cuda
