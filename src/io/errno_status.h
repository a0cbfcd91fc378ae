// One place where errno becomes a Status.
#pragma once

#include <string>

#include "ecphory/status.h"

namespace ecphory {

// "PATH: cannot ACTION: reason". Missing files are kNotFound; a full disk, a
// file size limit and missing descriptors or memory are kResourceExhausted;
// everything else is kIoError.
Status FileError(int error, const std::string& path, const char* action);

}  // namespace ecphory
