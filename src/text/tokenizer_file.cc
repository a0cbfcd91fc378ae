#include "text/tokenizer_file.h"

#include <cstdint>

#include "io/file.h"

namespace ecphory {

namespace {
// Far above the tokenizer.json of any published model (about 10 MB).
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
}  // namespace

Result<Tokenizer> ReadTokenizerFile(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string json,
                           ReadWholeFile(path, kMaxTokenizerBytes));
  return Tokenizer::FromJson(json, path);
}

}  // namespace ecphory
