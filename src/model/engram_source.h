// The Engram parts of a model source: its tables and what they must agree with.
// engram/source.h opens the same files without a model.
#pragma once

#include <vector>

#include "ecphory/status.h"
#include "engram/source_tables.h"
#include "model/source.h"

namespace ecphory {

using engram::StoredTable;

// The table of config.engram.layer_ids[index], dtype, width and row count
// checked. kNotFound when it is missing.
Result<StoredTable> FindTable(const ModelSource& source, size_t index);

// Every tensor that holds table rows or their scales: what no mapping covers.
std::vector<const TensorInfo*> EngramTableTensors(const ModelSource& source);

// Refuses Engram tensors of layers that the configuration gives no Engram,
// layers without a table, a token map of the wrong length or with ids out of
// range, and row counts that do not follow from the configuration.
Status CheckEngram(const ModelSource& source);

}  // namespace ecphory
