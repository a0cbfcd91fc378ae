// What the script of the trace page is given.
#pragma once

#include <string>
#include <string_view>

#include "ecphory/engram_trace.h"

namespace ecphory::trace {

// JSON; `text` has the bytes of all tokens.
std::string TracePageData(const EngramTrace& trace, std::string_view text);

}  // namespace ecphory::trace
