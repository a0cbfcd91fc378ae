// Safetensors: one shard's header, and a directory of shards.
#pragma once

#include <string>

#include "ecphory/status.h"
#include "format/tensor_index.h"
#include "io/file.h"

namespace ecphory {

// Adds a shard's tensors to `index`, which has it as file `file_number`. The
// caller calls index->Finish() after the last shard. Checks header length, JSON
// (structure, types, duplicate names), dtypes, data_offsets against shape and
// file, and that the tensors fill the data area without overlap or hole.
Status ParseSafetensors(const RandomAccessFile& file, size_t file_number,
                        TensorIndex* index);

// All shards of a directory: those named by model.safetensors.index.json when
// it is there (each tensor must be where it says, and it must list all), else
// model.safetensors alone, else every *.safetensors.
Result<TensorIndex> OpenSafetensorsDirectory(const std::string& directory);

}  // namespace ecphory
