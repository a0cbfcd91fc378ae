// Exact primality of 64-bit numbers.
#pragma once

#include <cstdint>

namespace ecphory::engram {

// Miller-Rabin with enough bases to be a proof below 2^64.
bool IsPrime(uint64_t n);

}  // namespace ecphory::engram
