// The metadata of a converted file: architecture `deepseek41`.
#pragma once

#include <string>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"
#include "engram/hasher.h"
#include "format/gguf.h"
#include "model/source.h"

namespace ecphory {

// Every key that ParseConfigGguf reads, the whole config.json, the tokenizer
// and the Engram numbers. `quantization` describes the tensors' types.
Status AddMetadata(const ModelSource& source, const std::string& quantization,
                   GgufWriter* writer);
// The same for a model under any name, whose config.json is given (compact,
// keys sorted).
Status AddMetadata(const ModelSource& source, const std::string& name,
                   const std::string& config, const std::string& quantization,
                   GgufWriter* writer);

// The tokenizer.ggml.* keys but the token ids.
void AddTokenizerKeys(const Tokenizer& tokenizer, GgufWriter* w);

}  // namespace ecphory
