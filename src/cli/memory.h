// What this process takes, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ecphory::cli {

struct MemoryUse {
  uint64_t peak_bytes = 0;       // VmHWM: most that was ever resident, file
                                 // pages included
  uint64_t anonymous_bytes = 0;  // RssAnon: heap and stacks now
  uint64_t file_bytes = 0;       // RssFile: pages of mapped files now; the
                                 // kernel may take them back at any time
};

// All zero where /proc is missing.
MemoryUse ReadMemoryUse();

}  // namespace ecphory::cli
