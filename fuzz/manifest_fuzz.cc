// A manifest of checksums from hostile bytes: what is accepted is written again
// as it was.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tables/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto manifest = ecphory::tables::ParseManifest(text, "fuzz");
  if (!manifest.ok()) return 0;
  const std::string written = ecphory::tables::ManifestText(*manifest);
  const auto again = ecphory::tables::ParseManifest(written, "fuzz");
  if (!again.ok() || again->Whole() != manifest->Whole()) std::abort();
  return 0;
}
