#include "capi/error.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace ecphory::capi {

namespace {

constexpr size_t kMessageBytes = 1024;

// Messages are on the heap: a library with a signal handler takes all of its
// thread-local memory from the little that a process keeps for libraries that
// it loads late (glibc's static TLS surplus), which others need too.
class Message {
 public:
  ~Message();
  // Null when there is no memory.
  char* Buffer() {
    if (text_ == nullptr) text_ = new (std::nothrow) char[kMessageBytes];
    return text_;
  }

 private:
  char* text_ = nullptr;
};

constexpr char kEnding[] = "the message is gone: its thread is ending";

// Without destructors: these may be used while a thread ends, after `own`.
thread_local const char* last_error = "";
thread_local bool ending = false;
thread_local Message own;

Message::~Message() {
  delete[] text_;
  last_error = kEnding;
  ending = true;
}

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
  if (ending) return status;
  char* buffer = own.Buffer();
  last_error = buffer == nullptr ? "out of memory" : buffer;
  if (buffer == nullptr) return status;
  const size_t size = std::min(std::strlen(message), kMessageBytes - 1);
  std::memcpy(buffer, message, size);
  buffer[size] = '\0';
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
