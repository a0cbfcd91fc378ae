#include "io/errno_status.h"

namespace ecphory {

Status FileError(int error, const std::string& path, const char* action) {
  return ErrnoError(error, "%s: cannot %s", path.c_str(), action);
}

}  // namespace ecphory
