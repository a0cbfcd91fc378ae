// Where C++ ends: statuses become numbers, exceptions stop here.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "ecphory/engram.h"
#include "ecphory/status.h"

namespace ecphory::capi {

// The number of `status`; an error's message becomes this thread's last error.
ecphory_engram_status Report(const Status& status) noexcept;
// For when there is no memory to build a Status.
ecphory_engram_status ReportText(ecphory_engram_status status,
                                 const char* message) noexcept;
const char* LastError() noexcept;

// Runs `body` (returns a Status) and reports what it returned or threw.
template <typename Body>
ecphory_engram_status Guard(Body&& body) noexcept {
  try {
    return Report(std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    return ReportText(ECPHORY_ENGRAM_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return ReportText(ECPHORY_ENGRAM_INTERNAL, error.what());
  } catch (...) {
    return ReportText(ECPHORY_ENGRAM_INTERNAL, "an unknown exception");
  }
}

// kInvalidArgument naming a NULL argument.
Status NullArgument(const char* name);

}  // namespace ecphory::capi
