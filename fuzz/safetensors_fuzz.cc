// A safetensors shard from hostile bytes.
#include <cstdint>

#include "check_index.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = ecphory::MakeMemoryFile("fuzz", {data, size});
  ecphory::TensorIndex index;
  const size_t number = index.AddFile({"fuzz", size});
  if (!ecphory::ParseSafetensors(*file, number, &index).ok()) return 0;
  if (!index.Finish().ok()) return 0;
  ecphory::CheckIndex(index);
  return 0;
}
