// tokenizer.ggml.* -> Tokenizer.
#pragma once

#include <optional>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"
#include "format/gguf.h"

namespace ecphory {

// The tokenizer.ggml.* keys; nothing when the file has none. Errors name the
// file.
Result<std::optional<Tokenizer>> ReadGgufTokenizer(const GgufFile& file);

}  // namespace ecphory
