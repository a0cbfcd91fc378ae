#include "ecphory/version.h"

namespace ecphory {
const char* Version() { return ECPHORY_VERSION_STRING; }
}  // namespace ecphory
