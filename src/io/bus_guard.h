// A file that is cut under its mapping: SIGBUS as a return value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ecphory/status.h"

namespace ecphory {

// Installs the process's SIGBUS handler, once; before the first RunGuarded. It
// acts on faults inside the memory of a RunGuarded call of the faulting thread
// and hands all others to the handler that was there before.
Status InstallBusGuard();

// Runs body(context), which reads `memory`. False when a page of it cannot be
// had: the body was then left in its middle, without destructors, so it must
// own nothing, lock nothing and allocate nothing. Nests; thread-safe.
[[nodiscard]] bool RunGuarded(std::span<const uint8_t> memory,
                              void (*body)(void* context), void* context);

}  // namespace ecphory
