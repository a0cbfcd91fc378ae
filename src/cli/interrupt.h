// Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.
#pragma once

#include <atomic>

namespace ecphory::cli {

// Installs the handlers. Also ignores SIGPIPE: a closed pipe is then a failed
// write, reported like any other.
void CatchInterrupts();

bool Interrupted();
// For the library's `cancel` options; lives as long as the program.
std::atomic<bool>* InterruptFlag();

}  // namespace ecphory::cli
