// What the opaque handles hold, and structures that grow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "ecphory/engram.h"
#include "ecphory/status.h"
#include "engram/hasher.h"
#include "engram/memory.h"

struct ecphory_engram {
  std::unique_ptr<ecphory::engram::Memory> memory;
};

struct ecphory_engram_sequence {
  std::shared_ptr<const ecphory::engram::Hasher> hasher;
  ecphory::engram::History history;
};

namespace ecphory::capi {

// A struct_size above this is none: uninitialised memory, most likely.
inline constexpr size_t kMaxStructBytes = 4096;

// Gives the caller `result`, and zeros beyond what this library knows of the
// structure. All of version 1 must fit.
template <typename T>
Status GiveResult(T result, T* out, const char* name) {
  const size_t size = out->struct_size;
  if (size < sizeof(T) || size > kMaxStructBytes) {
    return InvalidArgument("%s->struct_size is %zu, expected %zu..%zu", name,
                           size, sizeof(T), kMaxStructBytes);
  }
  result.struct_size = size;
  std::memset(out, 0, size);
  std::memcpy(out, &result, sizeof(T));
  return {};
}

}  // namespace ecphory::capi
