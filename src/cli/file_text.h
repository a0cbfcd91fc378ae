// A small file as one string.
#pragma once

#include <string>

#include "ecphory/status.h"

namespace ecphory::cli {

// kNotFound, kIoError, kOutOfRange (more than `max_bytes`) or kCancelled
// (Ctrl-C), naming `path`.
Result<std::string> ReadFileText(const std::string& path, size_t max_bytes);

}  // namespace ecphory::cli
