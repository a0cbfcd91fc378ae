// y = x W^T for many tokens on warpgroups (ops/cuda/wide_products.cuh): F16,
// BF16, FP8 and FP4 weights on compute capability 9.0.
#pragma once

#include "ops/cuda/matmul_tile.cuh"

namespace ecphory::cuda {

bool CanWide(const TileArgs& args);

// CanWide() says that it can. `bf16`: x holds bf16 values. Unless it is null,
// what is returned is set, on the device, where scales of a row turn out to be
// too far apart: y has to be computed another way then.
const int* RunWide(const TileArgs& args, bool bf16);

}  // namespace ecphory::cuda
