// Where a model without stored token map (config.json models) gets it from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "model/source.h"

namespace ecphory {

// token_map.npy beside config.json when it is there, else built from the
// tokenizer, whose classes must then number engram_compressed_vocab_size.
// kNotFound when the directory has neither.
Result<std::vector<int32_t>> DirectoryTokenMap(const ModelSource& source,
                                               const std::string& directory);

// The map of `source`'s tokenizer, held against the configuration.
Result<std::vector<int32_t>> TokenizerTokenMap(const ModelSource& source);

}  // namespace ecphory
