// Outputs that are not finished.
#pragma once

#include "ecphory/export.h"

namespace ecphory {

// Removes what has been written so far of all files and directories that would
// be removed if their writing failed; those that can be continued stay. For a
// process that ends at once: it may be called in a signal handler, and from
// then on no such file is begun or finished (kCancelled).
ECPHORY_EXPORT void RemovePartialFiles();

}  // namespace ecphory
