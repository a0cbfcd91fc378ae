// Where a job will write, looked at before it begins.
#pragma once

#include <span>
#include <string>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

// kInvalidArgument when `output` is one of `inputs` under whatever name, lies
// in one that is a directory and is a part of its model (.json, .safetensors,
// .gguf, .npy), is another part of one that is named as the part of a GGUF
// model ("m-00001-of-00003.gguf"), or exists and is no regular file; kNotFound
// or kIoError when its directory is missing or not writable. Inputs may be
// empty strings.
ECPHORY_EXPORT Status CheckOutputPath(const std::string& output,
                                      std::span<const std::string> inputs);

}  // namespace ecphory
