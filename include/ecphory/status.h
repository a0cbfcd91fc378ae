// Status and Result: how every call that can fail on outside input reports it.
#pragma once

#include <cstdarg>
#include <optional>
#include <string>
#include <utility>

#include "ecphory/export.h"

namespace ecphory {

// The kind of failure. Each kind maps to one exit code of the command line
// tool (see docs/errors.md).
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // a flag, option or argument is wrong
  kNotFound,           // a file, key or tensor is missing
  kCorrupt,            // a file contradicts its own format
  kUnsupported,        // valid, but this build or version cannot do it
  kOutOfRange,         // an index or position is outside what exists
  kResourceExhausted,  // not enough memory, disk or descriptors
  kIoError,            // the operating system refused or failed an operation
  kCancelled,          // the caller asked to stop
  kDeviceError,        // an accelerator failed
  kInternal,           // our own bug
};

// Stable lower-case name, e.g. "corrupt".
ECPHORY_EXPORT const char* StatusCodeName(StatusCode code);

// Success, or a code and one line that says what, where, what was expected and
// what to do. Cheap to move; success allocates nothing.
class [[nodiscard]] ECPHORY_EXPORT Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "corrupt: model.gguf: ..." or "ok".
  std::string ToString() const;
  // The same failure with "context: " put in front of the message.
  Status WithContext(const std::string& context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

#if defined(__GNUC__)
#define ECPHORY_PRINTF(format_arg, first_arg) \
  __attribute__((format(printf, format_arg, first_arg)))
#else
#define ECPHORY_PRINTF(format_arg, first_arg)
#endif

// printf-style makers, one per code.
ECPHORY_EXPORT Status InvalidArgument(const char* format, ...)
    ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status NotFound(const char* format, ...) ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status Corrupt(const char* format, ...) ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status Unsupported(const char* format, ...) ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status OutOfRange(const char* format, ...) ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status ResourceExhausted(const char* format, ...)
    ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status IoError(const char* format, ...) ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status Cancelled(const char* format, ...) ECPHORY_PRINTF(1, 2);
ECPHORY_EXPORT Status Internal(const char* format, ...) ECPHORY_PRINTF(1, 2);
// ": strerror(error)" appended; the code follows `error`, an errno value.
ECPHORY_EXPORT Status ErrnoError(int error, const char* format, ...)
    ECPHORY_PRINTF(2, 3);

// A value or the Status that explains why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    if (status_.ok()) status_ = Internal("Result made from an ok Status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // The value; only after ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace ecphory

// Return from the enclosing function when `expr` (a Status) is an error.
#define ECPHORY_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    ::ecphory::Status ecphory_status_ = (expr);        \
    if (!ecphory_status_.ok()) return ecphory_status_; \
  } while (0)

#define ECPHORY_CONCAT_INNER_(a, b) a##b
#define ECPHORY_CONCAT_(a, b) ECPHORY_CONCAT_INNER_(a, b)

// Declare or assign `lhs` from the Result `expr`, or return its error.
#define ECPHORY_ASSIGN_OR_RETURN(lhs, expr)                                  \
  ECPHORY_ASSIGN_OR_RETURN_(ECPHORY_CONCAT_(ecphory_result_, __LINE__), lhs, \
                            expr)
#define ECPHORY_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.ok()) return result.status();          \
  lhs = std::move(result).value()
