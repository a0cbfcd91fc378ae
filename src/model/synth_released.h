// A synthetic model as a released directory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "format/tensor_stream.h"
#include "model/source.h"
#include "model/synth_stream.h"
#include "model/synth_values.h"

namespace ecphory {

// config.json, tokenizer.json, token_map.npy, the index and its shards: one of
// the model's own tensors, one a layer, one a table. `directory` appears when
// all of it is written.
Status WriteSynthDirectory(const ModelSource& source, const std::string& config,
                           const std::vector<SynthTensor>& tensors,
                           const std::string& directory,
                           const TensorStream::Progress& progress,
                           SynthStream* stream);

}  // namespace ecphory
