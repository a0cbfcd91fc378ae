// A released directory's n-gram table as a one-tensor GGUF sidecar.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ecphory/status.h"
#include "format/gguf.h"
#include "ple/shards.h"

namespace ecphory::ple {

struct PackOptions {
  DType type = DType::kQ8_0;  // or kBF16, from BF16 shards only
  // Called now and then with bytes done and total; false cancels. May be empty.
  GgufWriter::Progress progress = {};
};

// Writes architecture `qwen38-next-ple` with tensor
// `per_layer_token_embd.weight` to `output`, whole or not at all, in scratch of
// a few MiB. Refuses when the disk has too little room, and what
// ShardedTable::EncodeRows refuses.
Status PackTable(const ShardedTable& table, const std::string& output,
                 const PackOptions& options);

}  // namespace ecphory::ple
