#include "tables/per_layer.h"

#include <memory>
#include <string>
#include <utility>

#include "format/gguf.h"
#include "io/file.h"
#include "ple/shards.h"

namespace ecphory::tables {

Result<std::optional<ple::Table>> FindPerLayerTable(const TableInput& input) {
  const auto first = OpenFile(input.path);
  if (!first.ok()) return std::optional<ple::Table>();
  const auto gguf = GgufFile::Parse(*first);
  if (!gguf.ok() || !ple::IsTableFile(*gguf)) {
    return std::optional<ple::Table>();
  }
  if (!input.more_tables.empty()) {
    return InvalidArgument(
        "%s: more files of rows were given, a per-layer table is one tensor",
        input.path.c_str());
  }
  std::vector<std::string> more = {input.config};
  if (input.config.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(more, GgufParts(*gguf));
    more.erase(more.begin());
  }
  std::vector<std::shared_ptr<RandomAccessFile>> files = {*first};
  for (const std::string& path : more) {
    ECPHORY_ASSIGN_OR_RETURN(auto file, OpenFile(path));
    files.push_back(std::move(file));
  }
  ECPHORY_ASSIGN_OR_RETURN(ple::Table table,
                           ple::OpenTable(files, {.eos_id = input.eos_id}));
  return std::optional<ple::Table>(std::move(table));
}

Status RefuseShards(const TableInput& input) {
  ECPHORY_ASSIGN_OR_RETURN(const bool shards, ple::HasShards(input.path));
  if (!shards) return {};
  return Unsupported(
      "%s: a per-layer n-gram table in shards; 'ecphory engram pack' makes a "
      "GGUF file of it",
      input.path.c_str());
}

std::vector<Region> PerLayerRegions(const ple::Layout& layout, uint64_t rows,
                                    size_t row_bytes, uint64_t offset) {
  const uint64_t bytes = layout.rows() * row_bytes;
  const auto row = static_cast<uint32_t>(row_bytes);
  std::vector<Region> regions = {{"per_layer", offset, bytes, row}};
  if (rows > layout.rows()) {
    regions.push_back({"per_layer_padding", offset + bytes,
                       (rows - layout.rows()) * row_bytes, row});
  }
  return regions;
}

}  // namespace ecphory::tables
