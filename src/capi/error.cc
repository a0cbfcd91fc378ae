#include "capi/error.h"

#include <algorithm>
#include <cstring>

namespace ecphory::capi {

namespace {

constexpr size_t kMessageBytes = 1024;

// No destructor, so that a thread's last words can still be read while it ends.
thread_local char last_error[kMessageBytes] = "";

// The numbers of the two lists are the same.
static_assert(static_cast<int>(StatusCode::kOk) == ECPHORY_ENGRAM_OK);
static_assert(static_cast<int>(StatusCode::kInvalidArgument) ==
              ECPHORY_ENGRAM_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::kNotFound) ==
              ECPHORY_ENGRAM_NOT_FOUND);
static_assert(static_cast<int>(StatusCode::kCorrupt) == ECPHORY_ENGRAM_CORRUPT);
static_assert(static_cast<int>(StatusCode::kUnsupported) ==
              ECPHORY_ENGRAM_UNSUPPORTED);
static_assert(static_cast<int>(StatusCode::kOutOfRange) ==
              ECPHORY_ENGRAM_OUT_OF_RANGE);
static_assert(static_cast<int>(StatusCode::kResourceExhausted) ==
              ECPHORY_ENGRAM_RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(StatusCode::kIoError) ==
              ECPHORY_ENGRAM_IO_ERROR);
static_assert(static_cast<int>(StatusCode::kCancelled) ==
              ECPHORY_ENGRAM_CANCELLED);
static_assert(static_cast<int>(StatusCode::kDeviceError) ==
              ECPHORY_ENGRAM_DEVICE_ERROR);
static_assert(static_cast<int>(StatusCode::kInternal) ==
              ECPHORY_ENGRAM_INTERNAL);

}  // namespace

ecphory_engram_status ReportText(ecphory_engram_status status,
                                 const char* message) noexcept {
  const size_t size = std::min(std::strlen(message), kMessageBytes - 1);
  std::memcpy(last_error, message, size);
  last_error[size] = '\0';
  return status;
}

ecphory_engram_status Report(const Status& status) noexcept {
  if (status.ok()) return ECPHORY_ENGRAM_OK;
  return ReportText(static_cast<ecphory_engram_status>(status.code()),
                    status.message().c_str());
}

const char* LastError() noexcept { return last_error; }

Status NullArgument(const char* name) {
  return InvalidArgument("%s is NULL", name);
}

}  // namespace ecphory::capi
