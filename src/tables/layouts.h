// The layouts that tools know by name, and files of tables laid out by them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/status.h"
#include "ecphory/tokenizer.h"
#include "engram/layout.h"
#include "tables/table_writer.h"
#include "tensor/table_codec.h"

namespace ecphory::tables {

// The numbers of an Engram that a table file can carry.
struct TableNumbers {
  engram::Layout layout;
  uint32_t width = 0;              // values a row
  std::vector<int32_t> token_map;  // may be empty: none is stored
  int32_t pad_id = 0;              // a compressed id
  int32_t image_token_id = -1;     // of dead positions; -1: not given
  std::optional<Tokenizer> tokenizer;
};

// "released" (DeepSeek-V4.1-Flash), "mini" (the bundled model), or the path of
// a config.json: configuration without derived numbers.
Result<EngramConfig> NamedLayout(const std::string& name);

// A GGUF file of tables alone: the Engram keys, the token map, the tokenizer
// where there is one, and the tables on page boundaries at the end.
Result<TableFilePlan> PlanGguf(const TableNumbers& numbers);
// Rows and nothing else, one table behind another.
Result<TableFilePlan> PlanRaw(const TableNumbers& numbers, TableCodec codec);
// One safetensors file with the released names: codes and scales of a layer
// are two regions (kReleasedPair), or bf16 rows one.
Result<TableFilePlan> PlanSafetensors(const TableNumbers& numbers,
                                      TableCodec codec);

}  // namespace ecphory::tables
