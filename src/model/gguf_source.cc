#include "model/gguf_source.h"

#include "engram/source_numbers.h"
#include "text/gguf_tokenizer.h"

namespace ecphory {

Result<ModelSource> OpenGgufSource(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  ModelSource source;
  source.path = path;
  source.format = "gguf";
  source.dialect = "ds4";
  ECPHORY_ASSIGN_OR_RETURN(source.config, ParseConfigGguf(file));
  source.index = file.index();
  ECPHORY_ASSIGN_OR_RETURN(source.tokenizer, ReadGgufTokenizer(file));
  if (source.config.engram.enabled()) {
    ECPHORY_ASSIGN_OR_RETURN(source.token_map, engram::ReadGgufTokenMap(file));
  }
  return source;
}

}  // namespace ecphory
