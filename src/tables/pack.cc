// The released pair, or another file of tables, as one file of row264 rows.
#include <chrono>
#include <memory>
#include <utility>

#include "base/quote.h"
#include "ecphory/engram_tables.h"
#include "ecphory/output_path.h"
#include "engram/config.h"
#include "io/output_path.h"
#include "io/path.h"
#include "ple/shards.h"
#include "tables/digest.h"
#include "tables/layouts.h"
#include "tables/manifest.h"
#include "tables/pack_job.h"
#include "tables/pack_source.h"
#include "tables/resumable_file.h"
#include "tables/table_set.h"
#include "tables/table_writer.h"

namespace ecphory::tables {

namespace {

Result<TableFilePlan> PlanOf(const PackOptions& options,
                             const TableNumbers& numbers) {
  if (options.container == TableContainer::kSafetensors) {
    return Unsupported("pack writes GGUF or raw rows, not safetensors");
  }
  return WritesGguf(options) ? PlanGguf(numbers)
                             : PlanRaw(numbers, TableCodec::kRow264);
}

Result<PackJob> EngramPackJob(const PackOptions& options, size_t threads) {
  if (!options.codec.empty() && options.codec != "row264") {
    return Unsupported("Engram tables as %s, expected row264",
                       Quoted(options.codec).c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<const PackSource> source,
                           PackSource::Open(options, threads));
  const TableNumbers& numbers = source->numbers();
  PackJob job;
  ECPHORY_ASSIGN_OR_RETURN(job.plan, PlanOf(options, numbers));
  job.signature = "pack " + source->identity() + "header " +
                  Hex(Digest::Of(job.plan.header));
  job.inputs = source->files();
  job.codec = engram::RowEncodingName(numbers.width);
  job.width = numbers.width;
  for (size_t i = 0; i < job.plan.regions.size(); ++i) {
    const engram::LayerLayout& layer = numbers.layout.layers[i];
    const Region& region = job.plan.regions[i];
    job.tables.push_back(
        {layer.layer_id, layer.rows, region.offset, region.row_bytes});
  }
  const uint64_t row_bytes = job.plan.regions[0].row_bytes;
  job.fill = [source = std::move(source), row_bytes](
                 size_t region, uint64_t begin, std::span<uint8_t> out,
                 size_t worker) {
    return source->ReadRows(region, begin / row_bytes, out, worker);
  };
  return job;
}

Status CheckOutputs(const PackOptions& options, const PackJob& job) {
  std::vector<std::string> inputs = job.inputs;
  const TableInput& input = options.input;
  inputs.insert(inputs.end(), input.more_tables.begin(),
                input.more_tables.end());
  inputs.insert(inputs.end(), {input.path, input.config, input.tokenizer});
  ECPHORY_RETURN_IF_ERROR(CheckNoInput(options.output, inputs));
  const std::string& manifest = options.write_manifest;
  if (manifest.empty()) return {};
  const std::string partial = options.output + ".partial";
  for (const std::string& own :
       {options.output, partial, partial + ".journal"}) {
    if (!SameFile(manifest, own)) continue;
    return InvalidArgument("%s: is the output's, expected another manifest",
                           manifest.c_str());
  }
  return CheckOutputPath(manifest, inputs);
}

// The same for both: written, read back, and said.
Result<WrittenTables> RunJob(const PackOptions& options, PackJob job,
                             size_t threads) {
  ECPHORY_RETURN_IF_ERROR(CheckOutputs(options, job));
  const uint64_t chunk_bytes =
      options.chunk_bytes != 0 ? options.chunk_bytes : kChunkBytes;
  ECPHORY_ASSIGN_OR_RETURN(const WrittenFile file,
                           WriteTableFile(job.plan, job.fill,
                                          {.path = options.output,
                                           .signature = job.signature,
                                           .overwrite = options.overwrite,
                                           .threads = threads,
                                           .chunk_bytes = chunk_bytes,
                                           .progress = options.progress}));
  if (!options.write_manifest.empty()) {
    ECPHORY_RETURN_IF_ERROR(
        WriteManifest(options.write_manifest,
                      MakeManifest(AllRegions(job.plan), file.digests)));
  }
  WrittenTables written;
  written.output = options.output;
  written.bytes = job.plan.total_bytes;
  written.resumed_bytes = file.resumed_bytes;
  written.verified = true;
  written.codec = job.codec;
  written.width = job.width;
  written.tables = std::move(job.tables);
  return written;
}

}  // namespace

bool WritesGguf(const PackOptions& options) {
  return options.container == TableContainer::kGguf ||
         (options.container == TableContainer::kByName &&
          HasExtension(options.output, ".gguf"));
}

}  // namespace ecphory::tables

namespace ecphory {

Result<WrittenTables> PackTables(const PackOptions& options) {
  using namespace tables;
  const auto start = std::chrono::steady_clock::now();
  const size_t threads = ThreadCount(options.threads);
  const bool parts = !options.tables.empty() || !options.scales.empty();
  bool per_layer = false;
  if (!parts) {
    ECPHORY_ASSIGN_OR_RETURN(per_layer, ple::HasShards(options.input.path));
  }
  ECPHORY_ASSIGN_OR_RETURN(PackJob job, per_layer
                                            ? PerLayerPackJob(options)
                                            : EngramPackJob(options, threads));
  ECPHORY_ASSIGN_OR_RETURN(WrittenTables written,
                           RunJob(options, std::move(job), threads));
  written.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return written;
}

}  // namespace ecphory
