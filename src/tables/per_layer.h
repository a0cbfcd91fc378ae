// Qwen-style per-layer n-gram tables (docs/ple.md) among the tools' inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"
#include "ple/gguf_table.h"
#include "tables/chunks.h"

namespace ecphory::tables {

// The table of input.path, where that is a GGUF file of one; input.config may
// be another that has what it lacks. Nothing where it is something else, or
// cannot be opened at all.
Result<std::optional<ple::Table>> FindPerLayerTable(const TableInput& input);

// kUnsupported, with what to do, where input.path is a released directory of
// such a table.
Status RefuseShards(const TableInput& input);

// The rows that the heads address, then the padding behind them if any: it is
// nobody's and may be zeros. `rows` are stored from `offset` on.
std::vector<Region> PerLayerRegions(const ple::Layout& layout, uint64_t rows,
                                    size_t row_bytes, uint64_t offset);

}  // namespace ecphory::tables
