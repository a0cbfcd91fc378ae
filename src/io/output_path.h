// What CheckOutputPath (ecphory/output_path.h) looks at.
#pragma once

#include <string>

#include "ecphory/status.h"

namespace ecphory {

// Whether both names lead to one file, or will when it is there. False for "".
bool SameFile(const std::string& a, const std::string& b);

// Whether `output` exists and is another part of the GGUF model that `input`
// names a part of, or what that leads to where it is a link.
bool IsOtherPart(const std::string& output, const std::string& input);

// Whether `output` exists and is a file of the model whose directory is read:
// all of them count, whichever a job opens, and what they lead to.
bool IsPartOf(const std::string& output, const std::string& directory);

// kInvalidArgument for a directory, device or pipe: a rename would replace it
// (think of -o /dev/null) by a file.
Status CheckReplaceable(const std::string& path);

}  // namespace ecphory
