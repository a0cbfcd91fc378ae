// A GGUF file as a model source: keys of architecture `deepseek41`.
#pragma once

#include <string>

#include "ecphory/status.h"
#include "format/gguf.h"
#include "model/source.h"

namespace ecphory {

Result<ModelSource> OpenGgufSource(const std::string& path);

// The configuration of a parsed file, validated. Other architectures and key
// dialects are refused by name, with what they lack.
Result<ModelConfig> ParseConfigGguf(const GgufFile& file);

}  // namespace ecphory
