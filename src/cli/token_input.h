// Token ids and image masks as the flags give them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory::cli {

// "1,2,3". Any 32-bit value passes: the model knows which ids exist.
Result<std::vector<int32_t>> ParseTokenList(const std::string& text);

// A .json file holding one array of integers, or a .npy array of integers.
Result<std::vector<int32_t>> ReadTokensFile(const std::string& path);

// A .npy array of `tokens` integers or bools: non-zero = image position.
Result<std::vector<uint8_t>> ReadImageMask(const std::string& path,
                                           size_t tokens);

}  // namespace ecphory::cli
