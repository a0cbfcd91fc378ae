#include "io/errno_status.h"

#include <cerrno>

namespace ecphory {

namespace {

StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return StatusCode::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return StatusCode::kResourceExhausted;
    default: return StatusCode::kIoError;
  }
}

}  // namespace

Status FileError(int error, const std::string& path, const char* action) {
  const Status status =
      ErrnoError(error, "%s: cannot %s", path.c_str(), action);
  return Status(CodeOf(error), status.message());
}

}  // namespace ecphory
