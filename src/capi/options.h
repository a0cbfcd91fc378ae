// ecphory_engram_options of any version -> MemoryOptions.
#pragma once

#include "ecphory/engram.h"
#include "ecphory/status.h"
#include "engram/memory.h"

namespace ecphory::capi {

// NULL: the defaults. Refuses a struct_size below version 1's, values out of
// range, and options beyond those known here that are not zero.
Result<engram::MemoryOptions> ReadOptions(
    const ecphory_engram_options* options);

}  // namespace ecphory::capi
