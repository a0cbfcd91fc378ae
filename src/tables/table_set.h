// The tables of a file or directory, and the byte ranges that they lie in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/status.h"
#include "engram/source.h"
#include "engram/store.h"
#include "ple/gguf_table.h"
#include "tables/chunks.h"

namespace ecphory::tables {

struct TableSet {
  engram::Source source;  // of Engram tables
  // A Qwen-style table, which then is the only one and has no `source`.
  std::optional<ple::Table> per_layer;
  std::vector<engram::TableSource> tables;  // in layer order

  // Nothing where a per-layer table's file does not say.
  std::optional<uint32_t> layer(size_t table) const {
    if (per_layer) return per_layer->layer;
    return source.config.layer_ids[table];
  }
};

// Layout, token map and extents are checked; no row is read.
Result<TableSet> OpenTableSet(const TableInput& input);

// Every name that is read from, tables and all: no output may be one of them.
std::vector<std::string> FilesRead(const TableInput& input,
                                   const TableSet& set);

// What a byte range of a source holds.
enum class RangeKind : uint8_t {
  kHeader,   // a GGUF's metadata and tensor directory
  kRows,     // whole rows
  kCodes,    // of the released pair
  kScales,   // of the released pair
  kPadding,  // rows of a per-layer table that nobody asks for
};
// Whether rows of a table lie there that must be valid.
inline bool HoldsRows(RangeKind kind) {
  return kind != RangeKind::kHeader && kind != RangeKind::kPadding;
}

struct SourceRange {
  Region region;  // name "header", "layer_1", "layer_1_codes", ...
  RangeKind kind = RangeKind::kRows;
  size_t table = 0;  // not of kHeader
  std::string file;
};

// The header of a GGUF file, then every table's range or two.
Result<std::vector<SourceRange>> RangesOf(const TableSet& set);

// Of Engram tables: "layer_1", and of a pair's parts "layer_1_codes",
// "layer_1_scales".
std::string RangeName(uint32_t layer, RangeKind kind);

// What a file is, so that work on it is not continued on another: path, size,
// inode and time of change.
std::string FileIdentity(const std::string& path);

// As asked for; 0: the processors, at most 8.
uint32_t ThreadCount(uint32_t asked);

}  // namespace ecphory::tables
