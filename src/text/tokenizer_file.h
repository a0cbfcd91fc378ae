// tokenizer.json -> Tokenizer.
#pragma once

#include <string>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// Refuses files above 256 MiB. Errors name the file.
Result<Tokenizer> ReadTokenizerFile(const std::string& path);

}  // namespace ecphory
