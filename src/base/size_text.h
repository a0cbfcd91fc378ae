// Sizes as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace ecphory {

// "412 bytes", "38.4 MB (38400123 bytes)", of 10^6.
std::string SizeText(uint64_t bytes);

}  // namespace ecphory
