// A model's files opened but not loaded: configuration, tensor directory,
// tokenizer and Engram numbers, whichever of the two ways in they came by.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/model.h"
#include "ecphory/session.h"
#include "ecphory/status.h"
#include "ecphory/tokenizer.h"
#include "engram/hasher.h"
#include "engram/store.h"
#include "format/tensor_index.h"

namespace ecphory {

struct ModelSource {
  std::string path;
  std::string format;   // "gguf", "safetensors"
  std::string dialect;  // GGUF only: "ds4"
  ModelConfig config;   // validated
  TensorIndex index;
  std::optional<Tokenizer> tokenizer;
  // Engram models only: raw id -> compressed id [vocab], from the GGUF, or
  // token_map.npy beside config.json, or built from the tokenizer.
  std::vector<int32_t> token_map;

  // Finds a tensor by its released name without ".weight"
  // ("layers.3.attn.wq_a"); for GGUF the name is translated. Null when absent.
  const TensorInfo* Find(const std::string& released_name) const;
};

// Opens a .gguf file or a directory; reads headers and small JSON only.
Result<ModelSource> OpenModelSource(const std::string& path);

// Layout, map and pad id as one hasher; kInvalidArgument for a model without
// Engram. Checks the layout's row counts against the tables.
Result<engram::Hasher> MakeHasher(const ModelSource& source);

// Table locations in layer_ids order, files opened. Refuses missing tables.
Result<std::vector<engram::TableSource>> EngramTables(
    const ModelSource& source);

// Everything `ecphory info` prints, with memory planned for a model that is
// opened and a session that is created with these options. `names` of the plan
// stays 0.
Result<ModelInfo> DescribeModel(const ModelSource& source,
                                const SessionOptions& session,
                                const ModelOptions& options,
                                uint32_t sequences = 1);

}  // namespace ecphory
