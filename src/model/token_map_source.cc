#include "model/token_map_source.h"

#include <algorithm>
#include <filesystem>

#include "format/npy.h"
#include "text/token_map.h"

namespace ecphory {

namespace {

// A header is far below this.
constexpr uint64_t kMaxHeaderBytes = 65536;

Result<std::vector<int32_t>> ReadTokenMap(const std::string& path,
                                          uint32_t vocab_size) {
  ECPHORY_ASSIGN_OR_RETURN(
      const NpyArray array,
      ReadNpy(path, uint64_t{vocab_size} * 8 + kMaxHeaderBytes));
  if (array.shape != std::vector<uint64_t>{vocab_size}) {
    return Corrupt(
        "%s: found %zu-dimensional shape of %llu values, expected "
        "[%u] (vocab_size)",
        path.c_str(), array.shape.size(),
        static_cast<unsigned long long>(array.count()), vocab_size);
  }
  Result<std::vector<int64_t>> wide = array.AsInt64();
  if (!wide.ok()) return wide.status().WithContext(path);
  std::vector<int32_t> map(wide->size());
  for (size_t i = 0; i < map.size(); ++i) {
    const int64_t id = (*wide)[i];
    if (id < 0 || id > INT32_MAX) {
      return Corrupt("%s: token %zu has compressed id %lld, expected 0 or more",
                     path.c_str(), i, static_cast<long long>(id));
    }
    map[i] = static_cast<int32_t>(id);
  }
  return map;
}

}  // namespace

Result<std::vector<int32_t>> TokenizerTokenMap(const ModelSource& source) {
  ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> map,
                           BuildTokenMap(*source.tokenizer));
  const int32_t classes =
      map.empty() ? 0 : *std::max_element(map.begin(), map.end()) + 1;
  const uint32_t expected = source.config.engram.compressed_vocab_size;
  if (static_cast<uint32_t>(classes) == expected) return map;
  return Corrupt(
      "%s: the tokenizer gives %d compressed ids, expected %u "
      "(engram_compressed_vocab_size)",
      source.path.c_str(), classes, expected);
}

Result<std::vector<int32_t>> DirectoryTokenMap(const ModelSource& source,
                                               const std::string& directory) {
  const std::string path = directory + "/token_map.npy";
  std::error_code ignored;
  // A link to nothing counts: reading it then says what is missing.
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    return ReadTokenMap(path, source.config.vocab_size);
  }
  if (source.tokenizer) return TokenizerTokenMap(source);
  return NotFound(
      "%s: no tokenizer.json and no token_map.npy, expected one of "
      "them for a model with Engram",
      directory.c_str());
}

}  // namespace ecphory
