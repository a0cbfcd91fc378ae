#include "tables/table_set.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "format/gguf.h"
#include "io/file.h"
#include "tables/per_layer.h"

namespace ecphory::tables {

namespace {

using engram::TableSource;

SourceRange MainRange(const TableSource& table, uint32_t layer, size_t number) {
  const bool pair = table.codec == TableCodec::kReleasedPair;
  SourceRange range;
  range.kind = pair ? RangeKind::kCodes : RangeKind::kRows;
  range.table = number;
  range.file = table.file->path();
  const size_t row_bytes = TableRowBytes(table.codec, table.width);
  range.region = {RangeName(layer, range.kind), table.offset,
                  table.rows * row_bytes, static_cast<uint32_t>(row_bytes)};
  return range;
}

SourceRange ScaleRange(const TableSource& table, uint32_t layer,
                       size_t number) {
  SourceRange range;
  range.kind = RangeKind::kScales;
  range.table = number;
  range.file = table.scale_file->path();
  const size_t row_bytes = TableScaleBytes(table.codec, table.width);
  range.region = {RangeName(layer, range.kind), table.scale_offset,
                  table.rows * row_bytes, static_cast<uint32_t>(row_bytes)};
  return range;
}

// Of part `number`, from 1, where a model is in parts.
Result<SourceRange> HeaderRange(const std::string& path, size_t number = 1) {
  ECPHORY_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  ECPHORY_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Parse(file));
  SourceRange header;
  header.kind = RangeKind::kHeader;
  header.file = path;
  const std::string name =
      number == 1 ? "header" : "header_" + std::to_string(number);
  header.region = {name, 0, gguf.data_offset(), 1};
  return header;
}

std::vector<SourceRange> PerLayerRanges(const ple::Table& table) {
  const TableSource& source = table.source;
  std::vector<SourceRange> ranges;
  for (Region& region : PerLayerRegions(
           table.layout, source.rows, TableRowBytes(source.codec, source.width),
           source.offset)) {
    SourceRange range;
    range.kind = ranges.empty() ? RangeKind::kRows : RangeKind::kPadding;
    range.file = source.file->path();
    range.region = std::move(region);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

// Offsets and lengths as OpenTables checked them, but for a table that lies in
// a file which shrank since.
Status CheckExtents(const TableSet& set) {
  for (const TableSource& table : set.tables) {
    const uint64_t bytes = table.rows * TableRowBytes(table.codec, table.width);
    if (table.offset <= table.file->size() &&
        bytes <= table.file->size() - table.offset) {
      continue;
    }
    return Corrupt(
        "%s: table '%s' of %llu bytes at offset %llu reaches past "
        "the end (%llu bytes); fetch the whole file again",
        table.file->path().c_str(), table.name.c_str(),
        static_cast<unsigned long long>(bytes),
        static_cast<unsigned long long>(table.offset),
        static_cast<unsigned long long>(table.file->size()));
  }
  return {};
}

}  // namespace

Result<TableSet> OpenTableSet(const TableInput& input) {
  TableSet set;
  ECPHORY_ASSIGN_OR_RETURN(set.per_layer, FindPerLayerTable(input));
  if (set.per_layer) {
    set.tables = {set.per_layer->source};
    ECPHORY_RETURN_IF_ERROR(CheckExtents(set));
    return set;
  }
  ECPHORY_RETURN_IF_ERROR(RefuseShards(input));
  if (input.eos_id) {
    return InvalidArgument(
        "%s: an EOS id was given, expected one of per-layer tables only",
        input.path.c_str());
  }
  engram::SourceOptions options;
  options.config = input.config;
  options.more_tables = input.more_tables;
  options.tokenizer = input.tokenizer;
  options.read_tokenizer = true;
  ECPHORY_ASSIGN_OR_RETURN(set.source, engram::OpenSource(input.path, options));
  ECPHORY_RETURN_IF_ERROR(engram::MakeHasher(set.source).status());
  ECPHORY_ASSIGN_OR_RETURN(set.tables, engram::OpenTables(set.source));
  ECPHORY_RETURN_IF_ERROR(CheckExtents(set));
  return set;
}

std::vector<std::string> FilesRead(const TableInput& input,
                                   const TableSet& set) {
  std::vector<std::string> files = input.more_tables;
  files.insert(files.end(), {input.path, input.config, input.tokenizer});
  for (const ModelFile& file : set.source.index.files()) {
    files.push_back(file.path);
  }
  for (const TableSource& table : set.tables) {
    files.push_back(table.file->path());
    if (table.scale_file) files.push_back(table.scale_file->path());
  }
  return files;
}

std::string RangeName(uint32_t layer, RangeKind kind) {
  const std::string name = "layer_" + std::to_string(layer);
  switch (kind) {
    case RangeKind::kHeader: return "header";
    case RangeKind::kRows:
    case RangeKind::kPadding: return name;
    case RangeKind::kCodes: return name + "_codes";
    case RangeKind::kScales: return name + "_scales";
  }
  return name;
}

Result<std::vector<SourceRange>> RangesOf(const TableSet& set) {
  std::vector<SourceRange> ranges;
  if (set.per_layer) {
    ECPHORY_ASSIGN_OR_RETURN(SourceRange header,
                             HeaderRange(set.per_layer->source.file->path()));
    ranges = PerLayerRanges(*set.per_layer);
    ranges.insert(ranges.begin(), std::move(header));
    return ranges;
  }
  if (set.source.kind == engram::SourceKind::kGguf) {
    for (const ModelFile& file : set.source.index.files()) {
      ECPHORY_ASSIGN_OR_RETURN(SourceRange header,
                               HeaderRange(file.path, ranges.size() + 1));
      ranges.push_back(std::move(header));
    }
  }
  const std::vector<uint32_t>& layers = set.source.config.layer_ids;
  for (size_t i = 0; i < set.tables.size(); ++i) {
    ranges.push_back(MainRange(set.tables[i], layers[i], i));
    if (set.tables[i].codec == TableCodec::kReleasedPair) {
      ranges.push_back(ScaleRange(set.tables[i], layers[i], i));
    }
  }
  return ranges;
}

std::string FileIdentity(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return path + " missing";
  std::error_code ignored;
  const auto absolute = std::filesystem::canonical(path, ignored);
  return absolute.string() + " " + std::to_string(info.st_size) + " " +
         std::to_string(info.st_ino) + " " +
         std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

uint32_t ThreadCount(uint32_t asked) {
  if (asked != 0) return asked;
  return std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
}

}  // namespace ecphory::tables
