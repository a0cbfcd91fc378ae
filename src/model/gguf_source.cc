#include "model/gguf_source.h"

#include <limits>
#include <utility>

#include "base/quote.h"
#include "io/file.h"

namespace ecphory {

namespace {

Result<std::vector<int32_t>> ReadTokenMap(const GgufFile& file) {
  const std::string key = "deepseek41.engram.token_map";
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<uint64_t> ids,
                           file.GetUintArray(key));
  std::vector<int32_t> map(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
      return Corrupt("%s: %s[%zu]: found %llu, expected a compressed id",
                     file.path().c_str(), key.c_str(), i,
                     static_cast<unsigned long long>(ids[i]));
    }
    map[i] = static_cast<int32_t>(ids[i]);
  }
  return map;
}

}  // namespace

Result<ModelSource> OpenGgufSource(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<RandomAccessFile> opened,
                           OpenFile(path));
  ECPHORY_ASSIGN_OR_RETURN(const GgufFile file,
                           GgufFile::Parse(std::move(opened)));
  ModelSource source;
  source.path = path;
  source.format = "gguf";
  source.dialect = "ds4";
  ECPHORY_ASSIGN_OR_RETURN(source.config, ParseConfigGguf(file));
  source.index = file.index();
  ECPHORY_ASSIGN_OR_RETURN(source.tokenizer, ReadGgufTokenizer(file));
  if (source.config.engram.enabled()) {
    ECPHORY_ASSIGN_OR_RETURN(source.token_map, ReadTokenMap(file));
  }
  return source;
}

}  // namespace ecphory
