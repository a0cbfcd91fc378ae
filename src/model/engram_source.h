// The Engram parts of a model source: tables and token map.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "engram/row_codec.h"
#include "model/source.h"

namespace ecphory {

// Where one Engram layer's table is stored.
struct StoredTable {
  engram::TableCodec codec = engram::TableCodec::kRow264;
  uint64_t rows = 0;
  uint32_t width = 0;  // values per row
  const TensorInfo* data = nullptr;
  const TensorInfo* scales = nullptr;  // kReleasedPair
};

// The table of config.engram.layer_ids[index], dtype, width and row count
// checked. kNotFound when it is missing.
Result<StoredTable> FindTable(const ModelSource& source, size_t index);

// What GGUF calls a row of `width` codes and its scales, and `info` prints:
// "e4m3_e8m0_32_row264" at 256.
std::string RowEncodingName(uint32_t width);

// Every tensor that holds table rows or their scales: what no mapping covers.
std::vector<const TensorInfo*> EngramTableTensors(const ModelSource& source);

// Refuses Engram tensors of layers that the configuration gives no Engram,
// layers without a table, a token map of the wrong length or with ids out of
// range, and row counts that do not follow from the configuration.
Status CheckEngram(const ModelSource& source);

}  // namespace ecphory
