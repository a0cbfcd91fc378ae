// Engram tables measured: where they are, what lies under them, how fast rows
// come. docs/engram-tools.md describes the tools that this is behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/engram_tables.h"
#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

// Random reads of one size with so many in flight.
struct ReadRate {
  std::string way;  // "uring", "pread", "fio"
  uint32_t depth = 0;
  uint32_t read_bytes = 0;
  uint64_t reads = 0;
  double reads_per_second = 0;
  double p50_us = 0;  // of a read
  double p95_us = 0;
  double p99_us = 0;
  double cpu_us_per_read = 0;
};

// ---- info ----

struct TablesInfoOptions {
  TableInput input;
  bool measure = true;   // reads for about a second
  double seconds = 1.0;  // in all
};

struct TableInfo {
  std::optional<uint32_t> layer;  // a per-layer sidecar does not say
  std::string name;               // tensor
  std::string file;
  uint64_t offset = 0;
  std::string codec;  // "e4m3_e8m0_32_row264", "released pair", ...
  uint64_t rows = 0;
  uint32_t width = 0;
  uint64_t row_bytes = 0;  // read for a row, scales included
  uint64_t bytes = 0;      // scales included
  std::string scale_file;  // of a pair
  uint64_t scale_offset = 0;
  uint64_t resident_bytes = 0;  // in the page cache now, scales included
};

// A file that holds tables, and what lies under it.
struct TableFileInfo {
  std::string path;
  uint64_t bytes = 0;
  std::string file_system;
  std::string device_kind;  // "SSD", "spinning disk", "virtual disk", ...
  std::string device;       // one line: file system, device, kind, sectors
  bool direct = false;      // O_DIRECT is allowed
  std::string direct_refusal;
};

// How a Qwen-style per-layer n-gram table is hashed into.
struct PerLayerInfo {
  std::vector<uint64_t> head_sizes;  // rows
  uint64_t rows = 0;                 // of all heads; the table may have more
  int32_t eos_id = 0;                // cuts the look-back
  std::optional<int32_t> image_id;   // hashed at image positions
};

struct TablesInfo {
  std::string path;
  std::string kind;      // "GGUF", "released directory", "raw rows"
  uint32_t columns = 0;  // rows a token and layer
  uint32_t max_ngram = 0;
  uint32_t compressed_vocab = 0;          // 0 of a per-layer table: it has none
  std::optional<PerLayerInfo> per_layer;  // Engram tables have none
  uint64_t bytes = 0;                     // of all tables
  uint32_t reads_per_token = 0;           // rows times places a row
  std::vector<TableInfo> tables;
  std::vector<TableFileInfo> files;
  bool uring = false;  // io_uring is allowed
  std::string uring_refusal;
  std::vector<ReadRate> measured;  // depth 1 and 64; 4096-byte reads
  std::string auto_mode;           // what --engram-io auto picks, and why
  std::string auto_reason;
  std::vector<std::string> warnings;
};

ECPHORY_EXPORT Result<TablesInfo> InspectTables(
    const TablesInfoOptions& options);

// ---- bench ----

struct TablesBenchOptions {
  TableInput input;
  enum class Pattern : uint8_t { kRandom, kText, kSequential };
  Pattern pattern = Pattern::kRandom;
  // kText: token ids, or a text for the tables' own tokenizer.
  std::vector<int32_t> tokens;
  std::string text;
  // Ways in by name ("uring", "pread", "buffered", "mmap", "ram"); empty: all
  // but ram, and ram where the tables take less than half the free memory.
  std::vector<std::string> modes;
  std::vector<uint32_t> depths = {1, 4, 16, 48, 128, 256};
  bool cold = true;          // the page cache is emptied of the tables first
  bool warm = true;          // the same rows again; only of ways that keep them
  uint64_t cache_bytes = 0;  // the store's row cache
  double seconds = 0.5;      // for each measurement
  uint64_t seed = 1;
  bool fio = false;  // also run fio, where it is installed
  TableProgress progress;
};

// The store measured through one way in.
struct BenchPoint {
  std::string mode;    // as asked for
  std::string used;    // what the store did, and why
  std::string state;   // "cold", "warm"
  uint32_t depth = 0;  // reads in flight at most; 0: a token at a time
  uint64_t tokens = 0;
  uint64_t rows = 0;
  double rows_per_second = 0;
  double p50_us = 0;  // of a lookup: one token's rows of all layers (depth 0),
  double p95_us = 0;  // or a batch of them
  double p99_us = 0;
  double cpu_us_per_row = 0;
  // Share of what the device itself did at this depth (48 for a token) just
  // before or after, the better of the two; 0 where warm.
  double of_ceiling = 0;
  uint64_t resident_before = 0;  // bytes of the tables in the page cache
  uint64_t resident_after = 0;
};

struct TablesBench {
  std::string path;
  std::string pattern;  // in words
  uint32_t rows_per_token = 0;
  uint64_t table_bytes = 0;
  uint64_t row_bytes = 0;
  std::string codec;
  uint64_t cache_bytes = 0;
  // Conditions.
  std::string date;  // UTC, ISO 8601
  std::string kernel;
  std::string cpu;
  uint32_t processors = 0;
  uint64_t memory_bytes = 0;
  std::vector<TableFileInfo> files;
  std::vector<ReadRate> ceiling;  // of the device, by depth
  std::vector<ReadRate> fio;      // the same by fio
  std::vector<BenchPoint> points;
  std::vector<std::string> notes;  // what was left out, and why
};

ECPHORY_EXPORT Result<TablesBench> BenchTables(
    const TablesBenchOptions& options);
// The sweep as a picture: an SVG file's text, complete in itself.
ECPHORY_EXPORT std::string BenchPicture(const TablesBench& bench);

}  // namespace ecphory
