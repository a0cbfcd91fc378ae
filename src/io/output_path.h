// What CheckOutputPath (ecphory/output_path.h) looks at.
#pragma once

#include <string>

#include "ecphory/status.h"

namespace ecphory {

// Whether both names lead to one file, or will when it is there. False for "".
bool SameFile(const std::string& a, const std::string& b);

// kInvalidArgument for a directory, device or pipe: a rename would replace it
// (think of -o /dev/null) by a file.
Status CheckReplaceable(const std::string& path);

}  // namespace ecphory
