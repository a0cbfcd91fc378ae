// The processors that this process may run on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory {

// Their number; at least 1.
size_t AvailableProcessors();

// Their numbers, ascending: what taskset or a control group left. Empty where
// the system does not say.
std::vector<int> AllowedProcessors();

// "0-3,8,10-11" -> 0 1 2 3 8 10 11, in the order given. kInvalidArgument names
// what is no number, a range that runs backwards, a processor given twice, and
// those outside `allowed`.
Result<std::vector<int>> ParseProcessorList(const std::string& list,
                                            const std::vector<int>& allowed);

// The calling thread runs on this processor alone from now on.
Status PinThisThread(int processor);

}  // namespace ecphory
