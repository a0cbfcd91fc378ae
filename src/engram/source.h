// An Engram's files opened without the model around it: the numbers of the
// hash, the token map, and where the tables lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/status.h"
#include "ecphory/tokenizer.h"
#include "engram/hasher.h"
#include "engram/source_tables.h"
#include "engram/store.h"
#include "format/tensor_index.h"

namespace ecphory::engram {

struct SourceOptions {
  // Where the numbers and the token map come from: a GGUF file, a released
  // directory or a config.json. Empty: the path that holds the rows. Raw row
  // files have no numbers of their own and need it.
  std::string config;
  // Raw rows in several files: the tables after the first, in layer order. One
  // raw file alone holds all tables, one behind another.
  std::vector<std::string> more_tables;
  // A .npy map, or a tokenizer.json to build it from, instead of what the
  // configuration has or lies beside it. Give one of them at most.
  std::string token_map;
  std::string tokenizer;
  // Fill Source::tokenizer where there is one.
  bool read_tokenizer = false;
  // Off: for addresses alone. Tables are neither needed nor looked at, `index`
  // stays empty, and the path may be a config.json.
  bool tables = true;
};

// What the path with the rows is.
enum class SourceKind : uint8_t {
  kGguf,      // keys and tensors of docs/formats.md; no backbone is needed
  kReleased,  // directory of safetensors: released pair or bf16
  kRawRows,   // row264 records and nothing else
};

// Headers and small JSON only: no table is touched.
struct Source {
  std::string path;
  SourceKind kind = SourceKind::kGguf;
  EngramConfig config;          // checked, and enabled
  uint32_t vocab_size = 0;      // entries of token_map
  int32_t image_token_id = -1;  // of dead positions; -1: not given
  std::vector<int32_t> token_map;
  TensorIndex index;  // raw rows: one tensor a table, by its GGUF name
  std::optional<Tokenizer> tokenizer;

  TableDirectory tables() const;  // borrows from this
};

// `path` is a GGUF file, a released directory, or a file of raw rows. What else
// the files hold is neither needed nor checked. kNotFound says what is missing:
// the path, Engram keys, tables, the token map.
Result<Source> OpenSource(const std::string& path,
                          const SourceOptions& options);

// Layout, map and pad id as one hasher. Row counts are held against the primes.
Result<Hasher> MakeHasher(const Source& source);

// Table locations in layer order, files opened.
Result<std::vector<TableSource>> OpenTables(const Source& source);

}  // namespace ecphory::engram
