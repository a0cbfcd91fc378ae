// Where a job will write, looked at before it begins.
#pragma once

#include <span>
#include <string>

#include "ecphory/status.h"

namespace ecphory {

// Whether both names lead to one file, or will when it is there. False for "".
bool SameFile(const std::string& a, const std::string& b);

// kInvalidArgument for a directory, device or pipe: a rename would replace it
// (think of -o /dev/null) by a file.
Status CheckReplaceable(const std::string& path);

// kInvalidArgument when `output` is one of `inputs` under whatever name, lies
// in one that is a directory and is a part of its model (.json, .safetensors,
// .gguf, .npy), or exists and is no regular file; kNotFound or kIoError when
// its directory is missing or not writable. Inputs may be empty strings.
Status CheckOutputPath(const std::string& output,
                       std::span<const std::string> inputs);

}  // namespace ecphory
