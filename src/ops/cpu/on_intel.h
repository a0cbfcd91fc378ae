// What the same instructions want differently on processors of two makers.
#pragma once

namespace ecphory {

// Whether the processor is one of Intel's; kernels ask for lines and cut loops
// accordingly.
extern const bool kOnIntel;

}  // namespace ecphory
