// The half of a report that follows from addresses alone.
#pragma once

#include <cstdint>
#include <vector>

#include "ecphory/engram_report.h"
#include "engram/hasher.h"

namespace ecphory::trace {

// [layers] of [tokens, columns].
using TableRows = std::vector<std::vector<uint64_t>>;

// Rows of all texts, each a fresh sequence, one after another.
Result<TableRows> HashTexts(const engram::Hasher& hasher,
                            const std::vector<std::vector<int32_t>>& texts);

// Fills report->reuse and report->best_hit_rate.
void CountKindReuse(const TableRows& rows, const engram::Layout& layout,
                    const std::vector<uint32_t>& windows,
                    EngramKindReport* report);

// Fills report->cache for caches of `bytes`, ascending, with requests in the
// order in which a decoder makes them: token, layer, column.
void SimulateCache(const TableRows& rows, const engram::Layout& layout,
                   uint64_t row_bytes, const std::vector<uint64_t>& bytes,
                   EngramKindReport* report);

}  // namespace ecphory::trace
