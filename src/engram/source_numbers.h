// What a hasher is made of: configuration, token map, layout and pad id, read
// without the model and held against each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/status.h"
#include "ecphory/tokenizer.h"
#include "engram/hasher.h"
#include "format/gguf.h"

namespace ecphory::engram {

struct Numbers {
  EngramConfig config;          // checked, and enabled
  uint32_t vocab_size = 0;      // 0: not given; the token map's length then
  int32_t image_token_id = -1;  // -1: not given
};
// From a GGUF's metadata; from the text of a config.json, or of one that has
// the engram_* keys alone. No other key is needed. kNotFound without Engram
// keys.
Result<Numbers> ReadGgufNumbers(const GgufFile& file);
Result<Numbers> ReadJsonNumbers(const std::string& text,
                                const std::string& where);

// "deepseek41.engram.token_map". Errors name the file.
Result<std::vector<int32_t>> ReadGgufTokenMap(const GgufFile& file);

// A .npy file of one integer per token; of any length when `vocab_size` is 0.
Result<std::vector<int32_t>> ReadTokenMapFile(const std::string& path,
                                              uint32_t vocab_size);

// The map of a tokenizer, whose classes must number compressed_vocab_size.
// `where` is for errors.
Result<std::vector<int32_t>> MapOfTokenizer(const Tokenizer& tokenizer,
                                            const EngramConfig& config,
                                            const std::string& where);

// Where a released directory has its map: token_map.npy when it is there, else
// built from `tokenizer` (may be null). kNotFound when there is neither.
Result<std::vector<int32_t>> DirectoryTokenMap(const std::string& directory,
                                               const EngramConfig& config,
                                               uint32_t vocab_size,
                                               const Tokenizer* tokenizer);

// The stored numbers where there are any, else the derived ones; both, when
// both are known, must agree. Refuses a map that is not [vocab_size] and row
// counts that do not follow from the primes. `where` is for errors.
Result<Hasher> MakeHasher(const EngramConfig& config, uint32_t vocab_size,
                          const std::vector<int32_t>& token_map,
                          const std::string& where);

}  // namespace ecphory::engram
