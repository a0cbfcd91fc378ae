// From a Status to the process's exit code (docs/errors.md).
#pragma once

#include "ecphory/status.h"

namespace ecphory::cli {

// The reader of standard output went away: what a shell shows for SIGPIPE.
inline constexpr int kExitBrokenPipe = 141;
inline constexpr int kExitCancelled = 130;

int ExitCode(StatusCode code);

}  // namespace ecphory::cli
