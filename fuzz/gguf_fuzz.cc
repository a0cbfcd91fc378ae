// The GGUF header from hostile bytes, then every accessor on every key.
#include <cstdint>
#include <cstdlib>

#include "check_index.h"
#include "format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file =
      ecphory::GgufFile::Parse(ecphory::MakeMemoryFile("fuzz", {data, size}));
  if (!file.ok()) return 0;
  ecphory::CheckIndex(file->index());
  for (const std::string& key : file->Keys()) {
    const bool readable =
        file->GetUint(key).ok() + file->GetInt(key).ok() +
        file->GetFloat(key).ok() + file->GetBool(key).ok() +
        file->GetString(key).ok() + file->GetUintArray(key).ok() +
        file->GetIntArray(key).ok() + file->GetStringArray(key).ok();
    // Only arrays of floats and of bools have no accessor.
    if (!readable && !file->Find(key)->is_array) std::abort();
  }
  return 0;
}
