// A file of the full size that holds a few rows: for tests of addresses.
#pragma once

#include <cstdint>

#include "ecphory/status.h"
#include "tables/table_writer.h"

namespace ecphory::tables {

// Rows written together: about a page of them.
inline constexpr uint64_t kSparseRows = 16;

// Writes the header and, of each region, kSparseRows rows at every multiple of
// `stride` bytes and the last kSparseRows; everything else is a hole.
Status WriteSparseFile(const TableFilePlan& plan, const RegionFill& fill,
                       uint64_t stride, const WriteOptions& options);

}  // namespace ecphory::tables
