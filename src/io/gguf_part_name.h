// Names of the parts of a GGUF model: "m-00002-of-00005.gguf" is the second of
// five of "m".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ecphory {

// "-00002-of-00005.gguf"; `number` counts from 1.
std::string GgufPartEnding(uint64_t number, uint64_t count);

// What the end of a name says; of other names nothing.
struct GgufPartName {
  uint64_t count = 0;  // 0: not a part's
  std::string stem;    // what stands before the ending
};
GgufPartName ParseGgufPartName(const std::string& path);

}  // namespace ecphory
