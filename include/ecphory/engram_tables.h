// Engram tables as files: made, looked at, checked, packed and measured.
// docs/engram-tools.md describes the tools that this is behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ecphory/export.h"
#include "ecphory/status.h"

namespace ecphory {

// Called now and then, by one thread at a time, with bytes done and in all of a
// phase ("writing", "verifying"); returning false cancels.
using TableProgress = std::function<bool(const std::string& phase,
                                         uint64_t done, uint64_t total)>;

// Where one table lies in the file that was written.
struct WrittenTable {
  uint32_t layer = 0;
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

}  // namespace ecphory
