// Engram's compressed ids: tokens whose text normalises alike share one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ecphory/status.h"
#include "ecphory/tokenizer.h"

namespace ecphory {

// token id -> compressed id, ids given out at first sight of a key, in token-id
// order (docs/engram.md, 'Compressed ids').
Result<std::vector<int32_t>> BuildTokenMap(const Tokenizer& tokenizer);

// The key's text normalisation: NFKC, NFD, drop category M, lower-case per
// character, runs of [ \t\r\n] to one space, strip (exactly one space is kept).
Result<std::string> NormalizeForTokenMap(std::string_view utf8);

}  // namespace ecphory
