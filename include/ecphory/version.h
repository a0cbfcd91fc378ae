// Version of the library, at compile time and at run time.
#pragma once

#define ECPHORY_VERSION_MAJOR 0
#define ECPHORY_VERSION_MINOR 1
#define ECPHORY_VERSION_PATCH 0
#define ECPHORY_VERSION_STRING "0.1.0"

#include <string>

#include "ecphory/export.h"

namespace ecphory {
// Version the library was built as, e.g. "0.1.0".
ECPHORY_EXPORT const char* Version();
// Operator backends of this build, best first, each with the instruction set
// that it would run on here: "cpu (AVX2), ref".
ECPHORY_EXPORT std::string Backends();
}  // namespace ecphory
