// Under which conditions a report was made: machine, system, page cache.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/status.h"

namespace ecphory::trace {

// "AMD EPYC 9R14"; "" where /proc does not say.
std::string ProcessorName();
uint64_t MemoryBytes();
// "Linux 6.1.0 x86_64"
std::string SystemName();

// Bytes of [offset, offset + bytes) of a file that are in the page cache, whole
// pages counted. Reads none of them.
Result<uint64_t> ResidentBytes(const std::string& path, uint64_t offset,
                               uint64_t bytes);

}  // namespace ecphory::trace
