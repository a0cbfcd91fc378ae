// The released pair, or another file of tables, as one file of row264 rows.
#include <chrono>
#include <filesystem>
#include <utility>

#include "ecphory/engram_tables.h"
#include "tables/digest.h"
#include "tables/layouts.h"
#include "tables/manifest.h"
#include "tables/pack_source.h"
#include "tables/resumable_file.h"
#include "tables/table_set.h"
#include "tables/table_writer.h"

namespace ecphory::tables {

namespace {

using engram::TableCodec;

Result<TableFilePlan> PlanOf(const PackOptions& options,
                             const TableNumbers& numbers) {
  const bool gguf =
      options.container == TableContainer::kGguf ||
      (options.container == TableContainer::kByName &&
       std::filesystem::path(options.output).extension() == ".gguf");
  if (options.container == TableContainer::kSafetensors) {
    return Unsupported("pack writes GGUF or raw rows, not safetensors");
  }
  return gguf ? PlanGguf(numbers) : PlanRaw(numbers, TableCodec::kRow264);
}

WrittenTables Describe(const PackOptions& options, const TableNumbers& numbers,
                       const TableFilePlan& plan, const WrittenFile& file) {
  WrittenTables written;
  written.output = options.output;
  written.bytes = plan.total_bytes;
  written.resumed_bytes = file.resumed_bytes;
  written.verified = true;
  written.codec = engram::TableCodecName(TableCodec::kRow264);
  written.width = numbers.width;
  for (size_t i = 0; i < plan.regions.size(); ++i) {
    const engram::LayerLayout& layer = numbers.layout.layers[i];
    written.tables.push_back({layer.layer_id, layer.rows,
                              plan.regions[i].offset,
                              plan.regions[i].row_bytes});
  }
  return written;
}

}  // namespace

}  // namespace ecphory::tables

namespace ecphory {

Result<WrittenTables> PackTables(const PackOptions& options) {
  using namespace tables;
  const auto start = std::chrono::steady_clock::now();
  const size_t threads = ThreadCount(options.threads);
  ECPHORY_ASSIGN_OR_RETURN(const auto source,
                           PackSource::Open(options, threads));
  ECPHORY_ASSIGN_OR_RETURN(const TableFilePlan plan,
                           PlanOf(options, source->numbers()));
  ECPHORY_RETURN_IF_ERROR(CheckNoInput(options.output, source->files()));
  const RegionFill fill = [&](size_t region, uint64_t begin,
                              std::span<uint8_t> out, size_t worker) {
    const uint64_t row = begin / plan.regions[region].row_bytes;
    return source->ReadRows(region, row, out, worker);
  };
  ECPHORY_ASSIGN_OR_RETURN(
      const WrittenFile file,
      WriteTableFile(
          plan, fill,
          {.path = options.output,
           .signature = "pack " + source->identity() + "header " +
                        Hex(Digest::Of(plan.header)),
           .overwrite = options.overwrite,
           .threads = threads,
           .chunk_bytes =
               options.chunk_bytes != 0 ? options.chunk_bytes : kChunkBytes,
           .progress = options.progress}));
  if (!options.write_manifest.empty()) {
    ECPHORY_RETURN_IF_ERROR(WriteManifest(
        options.write_manifest, MakeManifest(AllRegions(plan), file.digests)));
  }
  WrittenTables written = Describe(options, source->numbers(), plan, file);
  written.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return written;
}

}  // namespace ecphory
