// Engram tables as files: made, looked at, checked, packed and measured.
// docs/engram-tools.md describes the tools that this is behind.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

// Called now and then, by one thread at a time, with bytes done and in all of a
// phase ("writing", "verifying"); returning false cancels.
using TableProgress = std::function<bool(const std::string& phase,
                                         uint64_t done, uint64_t total)>;

// Where tables are read from.
struct TableInput {
  // A GGUF file (of a model or of tables alone, also of a Qwen-style per-layer
  // table), a released directory, or a file of raw rows.
  std::string path;
  // Raw rows have no numbers of their own: a GGUF file, released directory or
  // config.json that has. Of a per-layer table in one part of a split GGUF
  // file: the part with the keys.
  std::string config;
  std::vector<std::string> more_tables;  // raw rows in several files
  std::string tokenizer;  // a tokenizer.json, where none lies beside them
  // Of a Qwen-style per-layer table whose file (or whose directory's
  // config.json) does not say it, and refused for Engram tables.
  std::optional<int32_t> eos_id;
};

// Where one table lies in the file that was written.
struct WrittenTable {
  std::optional<uint32_t> layer;  // a per-layer sidecar does not say
  uint64_t rows = 0;
  uint64_t offset = 0;  // of row 0 (of its codes)
  uint64_t row_bytes = 0;
};

// What a writing tool did.
struct WrittenTables {
  std::string output;
  uint64_t bytes = 0;
  uint64_t resumed_bytes = 0;  // were there from an earlier run
  double seconds = 0;
  bool verified = false;  // the whole file was read again and compared
  std::string codec;
  uint32_t width = 0;
  std::vector<WrittenTable> tables;
};

// ---- synth ----

enum class TableContainer : uint8_t {
  kByName,       // ".gguf" and ".safetensors", else raw
  kGguf,         // row264, with all Engram keys: opens as a memory of its own
  kSafetensors,  // pair and bf16, under the released names
  kRaw,          // rows and nothing else
};

struct SynthOptions {
  std::string output;
  TableContainer container = TableContainer::kByName;
  // "released", "mini", or the path of a config.json.
  std::string layout = "released";
  std::string codec = "row264";  // "pair", "bf16", "q8_0"
  uint32_t width = 0;            // values a row; 0: the layout's
  // About so many rows a layer: the layout's primes decide. 0: the layout's.
  uint64_t rows = 0;
  uint64_t vocab_size = 0;  // the primes' lower bound itself; 0: by `rows`
  uint64_t seed = 1;
  // Tokenizer to store with its token map (GGUF): a tokenizer.json. Without
  // one, every id below the compressed vocabulary stands for itself.
  std::string tokenizer;
  // Only 16 rows in every `sparse_bytes` of a table are written (and its last
  // ones); the rest are holes. 0: every row.
  uint64_t sparse_bytes = 0;
  bool overwrite = false;
  uint32_t threads = 0;  // 0: as many as there are processors, at most 8
  TableProgress progress;
};

// Writes tables of valid rows that follow from seed, table and row number
// alone. The file appears under its name when it is whole and was read back;
// a cancelled or killed run is continued by the same call (but not a sparse
// one, which is quick).
ECPHORY_EXPORT Result<WrittenTables> SynthTables(const SynthOptions& options);

// ---- pack ----

struct PackOptions {
  TableInput input;
  // The released pair as files of their own, one of each for every Engram
  // layer, in order: plain bytes, or safetensors with the released names. Then
  // input.path is not used and input.config says how they are laid out.
  std::vector<std::string> tables;
  std::vector<std::string> scales;
  std::string output;
  TableContainer container = TableContainer::kByName;  // GGUF or raw
  // "row264" of Engram tables; "bf16" or "q8_0" of a per-layer table. Empty:
  // row264, and q8_0.
  std::string codec;
  std::string write_manifest;  // checksums of the output; empty: nowhere
  bool overwrite = false;
  uint32_t threads = 0;      // 0: the processors, at most 8
  uint64_t chunk_bytes = 0;  // 0: 64 MiB; only tests need another
  TableProgress progress;
};

// Writes codes and scales of every row together, so that one read brings a row;
// of a released directory with a Qwen-style per-layer table, its shards as a
// GGUF sidecar of one tensor.
// The file appears under its name when it is whole and was read back. After an
// error, a full disk, a cancellation or a kill at any moment the same call goes
// on from what is there. Refuses outputs that are inputs, and tables whose rows
// row264 cannot hold bit for bit.
ECPHORY_EXPORT Result<WrittenTables> PackTables(const PackOptions& options);

// ---- verify ----

struct VerifyOptions {
  TableInput input;
  // Checksums to hold the tables against; empty: PATH.xxh where it exists.
  std::string manifest;
  // Where to write the checksums of tables without a fault; empty: nowhere.
  std::string write_manifest;
  // What is done so far, so that a killed run goes on; removed at the end.
  // Empty: none, or beside the manifest that is written.
  std::string state;
  size_t max_listed = 20;  // faults described one by one
  uint32_t threads = 0;    // reads in flight; 0: the processors, at most 8
  TableProgress progress;
};

// What one table holds.
struct TableCheck {
  std::optional<uint32_t> layer;  // a per-layer sidecar does not say
  std::string name;
  uint64_t rows = 0;             // without the padding of a per-layer table
  uint64_t nan_rows = 0;         // faults, as are the next two
  uint64_t bad_scale_rows = 0;   // scale 255
  uint64_t not_finite_rows = 0;  // a value overflows or is NaN
  uint64_t zero_rows = 0;        // of zero bytes; no fault by themselves
  uint64_t first_zero_row = 0;   // where zero_rows > 0
  // Runs of zero rows that a page which was never written fits into: faults.
  uint64_t missing_runs = 0;
  uint64_t missing_rows = 0;
};

struct TableFault {
  std::string what;
  std::string region;  // "layer_1", "layer_1_scales", "header"
  std::string file;
  uint64_t row = 0;     // the first; of a header a byte
  uint64_t rows = 0;    // how many are concerned
  uint64_t offset = 0;  // of that row in the file
};

struct VerifyReport {
  std::string path;
  uint64_t bytes = 0;          // of all regions
  uint64_t resumed_bytes = 0;  // known from an earlier run
  double seconds = 0;
  bool direct = false;  // read past the page cache
  std::vector<TableCheck> tables;
  uint64_t faults = 0;  // all of them
  std::vector<TableFault> first_faults;
  std::string manifest_checked;  // its path; empty: none
  uint64_t chunks_checked = 0;   // against it
  std::string manifest_written;
  std::string whole_digest;  // XXH3-64, 16 hex digits
};

// Reads every row of the tables once. Damage is no error but part of the
// report; an error is what stops it: files that cannot be read, a table of
// another size than its primes give, a damaged manifest.
ECPHORY_EXPORT Result<VerifyReport> VerifyTables(const VerifyOptions& options);

}  // namespace ecphory
