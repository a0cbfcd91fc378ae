// Signals. Ctrl-C, SIGTERM and a closed terminal: the first asks for a clean
// end, the second ends at once, without unfinished outputs.
#pragma once

#include <atomic>

namespace ecphory::cli {

// Installs the handlers. Also ignores SIGPIPE and SIGXFSZ: a closed pipe and a
// file over the size limit are then failed writes, reported like any other. A
// mapped model whose file shrinks or fails becomes one line and an exit code.
void CatchSignals();

bool Interrupted();
// For the library's `cancel` options; lives as long as the program.
std::atomic<bool>* InterruptFlag();

}  // namespace ecphory::cli
