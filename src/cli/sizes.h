// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace ecphory::cli {

std::string Grouped(uint64_t number);    // "1,234,567"
std::string HumanBytes(uint64_t bytes);  // "412 B", "38.4 MB" (10^6)
std::string HumanCount(uint64_t count);  // "12.3 M", "1.2 B" (10^9)
std::string HumanRate(double rate);      // "0.31", "8.9", "1312"

}  // namespace ecphory::cli
