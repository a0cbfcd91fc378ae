// Whether there is room for what is going to be written.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/status.h"

namespace ecphory {

// kResourceExhausted, in words, when FreeDiskBytes(path) is less than `bytes`.
Status CheckDiskRoom(const std::string& path, uint64_t bytes);

}  // namespace ecphory
