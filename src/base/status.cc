#include "ecphory/status.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace ecphory {

namespace {

std::string FormatV(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (length < 0) return format;
  std::vector<char> buffer(static_cast<size_t>(length) + 1);
  std::vsnprintf(buffer.data(), buffer.size(), format, args);
  return std::string(buffer.data(), static_cast<size_t>(length));
}

StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return StatusCode::kNotFound;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return StatusCode::kResourceExhausted;
    case ECANCELED: return StatusCode::kCancelled;
    default: return StatusCode::kIoError;
  }
}

}  // namespace

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kCorrupt: return "corrupt";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kOutOfRange: return "out of range";
    case StatusCode::kResourceExhausted: return "resource exhausted";
    case StatusCode::kIoError: return "i/o error";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kDeviceError: return "device error";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

Status Status::WithContext(const std::string& context) const {
  if (ok()) return {};
  return Status(code_, context + ": " + message_);
}

#define ECPHORY_DEFINE_MAKER(Name, code)        \
  Status Name(const char* format, ...) {        \
    va_list args;                               \
    va_start(args, format);                     \
    Status status(code, FormatV(format, args)); \
    va_end(args);                               \
    return status;                              \
  }

ECPHORY_DEFINE_MAKER(InvalidArgument, StatusCode::kInvalidArgument)
ECPHORY_DEFINE_MAKER(NotFound, StatusCode::kNotFound)
ECPHORY_DEFINE_MAKER(Corrupt, StatusCode::kCorrupt)
ECPHORY_DEFINE_MAKER(Unsupported, StatusCode::kUnsupported)
ECPHORY_DEFINE_MAKER(OutOfRange, StatusCode::kOutOfRange)
ECPHORY_DEFINE_MAKER(ResourceExhausted, StatusCode::kResourceExhausted)
ECPHORY_DEFINE_MAKER(IoError, StatusCode::kIoError)
ECPHORY_DEFINE_MAKER(Cancelled, StatusCode::kCancelled)
ECPHORY_DEFINE_MAKER(Internal, StatusCode::kInternal)
#undef ECPHORY_DEFINE_MAKER

Status ErrnoError(int error, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string message = FormatV(format, args);
  va_end(args);
  return Status(CodeOfErrno(error), message + ": " + std::strerror(error));
}

}  // namespace ecphory
