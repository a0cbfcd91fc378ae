// What `pack` is to write, whichever kind of tables it comes from.
#pragma once

#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"
#include "tables/table_writer.h"

namespace ecphory::tables {

struct PackJob {
  TableFilePlan plan;
  RegionFill fill;                  // owns what it reads from
  std::string signature;            // of WriteOptions
  std::vector<std::string> inputs;  // files that are read
  std::string codec;
  uint32_t width = 0;
  std::vector<WrittenTable> tables;
};

// Whether the output is a GGUF file, by container or name.
bool WritesGguf(const PackOptions& options);

// Of a released directory with a per-layer table (ple::HasShards). Refuses
// other containers than GGUF, codecs that the shards cannot become, and an EOS
// id that neither options nor the directory's config.json has, or that they
// contradict each other about.
Result<PackJob> PerLayerPackJob(const PackOptions& options);

}  // namespace ecphory::tables
