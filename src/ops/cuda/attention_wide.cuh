// Attention of many tokens by warpgroups: ops/cuda/attention_wide.cu.
#pragma once

#include "ops/attention.h"

namespace ecphory::cuda {

inline constexpr unsigned kWideHeads = 64;  // of a block

// Of a call that TakesTensorCores().
bool CanWideAttention(const AttentionArgs& args);
// Computes what has queries that are bf16 values. Returns [tokens, groups of
// kWideHeads heads] in the device's memory, 1 where they are not and nothing
// was written; null when there is no memory, which is noted.
const int* WideAttention(const AttentionArgs& args);

}  // namespace ecphory::cuda
