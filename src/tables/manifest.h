// Checksums of tables, as a text file (docs/engram-tools.md has the format).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "tables/chunks.h"

namespace ecphory::tables {

struct ManifestRegion {
  std::string name;
  uint64_t bytes = 0;
  uint64_t chunk_bytes = 0;
  std::vector<uint64_t> digests;  // one for each chunk
};

struct Manifest {
  std::vector<ManifestRegion> regions;

  // XXH3-64 over all chunk digests in order, eight little-endian bytes each.
  uint64_t Whole() const;
  const ManifestRegion* Find(const std::string& name) const;
};

// Of `regions` in chunks of ChunksOf(regions), with their digests in order.
Manifest MakeManifest(std::span<const Region> regions,
                      std::span<const uint64_t> digests);

std::string ManifestText(const Manifest& manifest);
// Refuses anything that ManifestText would not write; `where` names the file.
Result<Manifest> ParseManifest(const std::string& text,
                               const std::string& where);

Status WriteManifest(const std::string& path, const Manifest& manifest);
Result<Manifest> ReadManifest(const std::string& path);

}  // namespace ecphory::tables
