// Where the tables lie among the tensors of a GGUF file or released directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/status.h"
#include "engram/store.h"
#include "format/tensor_index.h"
#include "tensor/table_codec.h"

namespace ecphory::engram {

// How the tensors of a source are named and its rows packed.
enum class TensorNaming : uint8_t {
  kGguf,      // "blk.N.engram_embd.weight": codes and scales of a row together
  kReleased,  // "layers.N.engram.embed.weight", ".scale"; or bf16
};

// The tensors of a source and the configuration of its tables; both borrowed.
struct TableDirectory {
  std::string path;  // for errors
  TensorNaming naming = TensorNaming::kGguf;
  const TensorIndex* index = nullptr;
  const EngramConfig* config = nullptr;
};

// One table of a source.
struct StoredTable {
  TableCodec codec = TableCodec::kRow264;
  uint64_t rows = 0;
  uint32_t width = 0;  // values per row
  const TensorInfo* data = nullptr;
  const TensorInfo* scales = nullptr;  // kReleasedPair
};

// The tensor of a layer's rows as the source spells it.
std::string TableTensorName(TensorNaming naming, uint32_t layer);

// The table of layer_ids[table]; type, width and row count checked against the
// configuration. kNotFound when it is missing. Points into the index.
Result<StoredTable> FindTable(const TableDirectory& directory, size_t table);

// Every tensor that holds table rows or their scales.
std::vector<const TensorInfo*> TableTensors(const TableDirectory& directory);

// Refuses Engram tensors of layers that the configuration does not name: a
// model whose memory is there but not mentioned would run as another model.
Status RefuseUnmentionedTensors(const TableDirectory& directory);

// All tables in layer_ids order, each file opened once.
Result<std::vector<TableSource>> OpenTables(const TableDirectory& directory);

}  // namespace ecphory::engram
