// A one-tensor GGUF sidecar of a released directory's n-gram table.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/status.h"
#include "ple/shards.h"

namespace ecphory::ple {

// That of other writers of this format.
inline constexpr uint64_t kSidecarAlignment = 32;

// Everything before the rows: architecture `qwen38-next-ple`, the constants,
// and tensor `per_layer_token_embd.weight`. table.rows() rows of `type` as
// EncodeRows makes them follow, and zeros up to kSidecarAlignment. Refuses what
// RowBytes refuses.
Result<std::string> SidecarHeader(const ShardedTable& table, DType type);

}  // namespace ecphory::ple
