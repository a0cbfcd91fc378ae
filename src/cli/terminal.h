// What is known of the terminal behind standard output.
#pragma once

#include <cstdint>

namespace ecphory::cli {

// Columns; `fallback` when standard output is no terminal.
uint32_t TerminalWidth(uint32_t fallback);

}  // namespace ecphory::cli
