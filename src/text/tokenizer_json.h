// Reads Hugging Face tokenizer.json files.
#pragma once

#include <string>
#include <string_view>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// Takes byte-level BPE as the DeepSeek files have it and refuses by name what
// would change ids (other models, normalizers, pre-tokenizers, ...). What is
// inside the vocabulary and the merges is checked later, by FromData.
Result<TokenizerData> ParseTokenizerJson(std::string_view text,
                                         const std::string& where);

}  // namespace ecphory
