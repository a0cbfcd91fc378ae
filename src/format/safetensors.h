// Safetensors: one shard's header, and a directory of shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "format/tensor_index.h"
#include "io/file.h"

namespace ecphory {

// Adds a shard's tensors to `index` (which has it as file `file_number`).
// Checks: header size against the file, JSON shape, dtype names, offsets in
// order and matching shapes, no holes beyond the format's rules.
Status ParseSafetensors(const RandomAccessFile& file, size_t file_number,
                        TensorIndex* index);

// All shards of a directory: those named by model.safetensors.index.json when
// it is there (each tensor must be where it says), else every *.safetensors.
Result<TensorIndex> OpenSafetensorsDirectory(const std::string& directory);

}  // namespace ecphory
