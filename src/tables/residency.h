// How much of a file the page cache holds, and emptying it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ecphory/status.h"

namespace ecphory::tables {

// Bytes of [offset, offset + bytes) of a file that are in memory, counted in
// whole pages but at most `bytes`. Nothing where the kernel does not tell.
std::optional<uint64_t> ResidentBytes(const std::string& path, uint64_t offset,
                                      uint64_t bytes);

// Asks the kernel to forget the range. Pages that are dirty, mapped or locked
// by others stay: ask ResidentBytes afterwards.
Status DropResident(const std::string& path, uint64_t offset, uint64_t bytes);

}  // namespace ecphory::tables
