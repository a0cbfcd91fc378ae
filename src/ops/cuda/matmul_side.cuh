// y = x W^T for some tens of tokens on warpgroups (ops/cuda/wide_products.cuh),
// several products a launch: F16, BF16, FP8 and FP4 weights on compute
// capability 9.0.
#pragma once

#include <span>

#include "ops/cuda/matmul_tile.cuh"

namespace ecphory::cuda {

// Fewer are streamed, which takes less time: of four tokens a step of the
// release's layers, but not of six.
inline constexpr size_t kFewestSideTokens = 5, kMostSideTokens = 64;
inline constexpr size_t kMostSideProducts = 8;

// One that these kernels take.
bool CanSide(const TileArgs& product);

// CanSide() says that it can, of all; their formats and numbers of tokens are
// the same, and there are no more than kMostSideProducts.
void RunSide(std::span<const TileArgs> products);

}  // namespace ecphory::cuda
