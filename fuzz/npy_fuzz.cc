// An .npy file from hostile bytes.
#include <cstdint>
#include <cstdlib>

#include "format/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto array = ecphory::ParseNpy({data, size}, "fuzz");
  if (!array.ok()) return 0;
  const auto floats = array->AsFloat();
  const auto integers = array->AsInt64();
  if (floats.ok() && floats->size() != array->count()) std::abort();
  if (integers.ok() && integers->size() != array->count()) std::abort();
  return 0;
}
