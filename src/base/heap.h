// What the process has allocated.
#pragma once

#include <cstdint>

namespace ecphory {

// Bytes of live allocations, over all threads; 0 where the C library does not
// say (others than glibc, sanitizers).
uint64_t HeapInUse();

}  // namespace ecphory
