#include "model/source.h"

#include <utility>

#include "engram/source_numbers.h"
#include "format/json_keys.h"
#include "format/safetensors.h"
#include "io/file.h"
#include "io/path.h"
#include "model/engram_source.h"
#include "model/gguf_source.h"
#include "model/names.h"
#include "text/tokenizer_file.h"

namespace ecphory {

namespace {

Result<ModelConfig> ReadConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  if (!PathExists(path)) {
    return NotFound(
        "%s: missing, expected a released-layout directory "
        "(config.json, *.safetensors) or a .gguf file",
        path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, kMaxConfigBytes));
  return ParseConfigJson(text, path);
}

Result<std::optional<Tokenizer>> ReadTokenizer(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  if (!PathExists(path)) return std::optional<Tokenizer>();
  ECPHORY_ASSIGN_OR_RETURN(Tokenizer tokenizer, ReadTokenizerFile(path));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Result<ModelSource> OpenDirectory(const std::string& path) {
  ModelSource source;
  source.path = path;
  source.format = "safetensors";
  ECPHORY_ASSIGN_OR_RETURN(source.config, ReadConfig(path));
  ECPHORY_ASSIGN_OR_RETURN(source.index, OpenSafetensorsDirectory(path));
  ECPHORY_ASSIGN_OR_RETURN(source.tokenizer, ReadTokenizer(path));
  if (source.config.engram.enabled()) {
    ECPHORY_ASSIGN_OR_RETURN(
        source.token_map,
        engram::DirectoryTokenMap(
            path, source.config.engram, source.config.vocab_size,
            source.tokenizer ? &*source.tokenizer : nullptr));
  }
  return source;
}

// A smaller vocabulary is common (padded embeddings); a larger one would make
// ids that the model has no row for.
Status CheckTokenizer(const ModelSource& source) {
  if (!source.tokenizer) return {};
  const size_t tokens = source.tokenizer->vocab_size();
  if (tokens <= source.config.vocab_size) return {};
  return Corrupt(
      "%s: the tokenizer has %zu tokens, expected at most %u "
      "(vocab_size)",
      source.path.c_str(), tokens, source.config.vocab_size);
}

}  // namespace

const TensorInfo* ModelSource::Find(const std::string& released_name) const {
  if (format == "gguf") {
    const std::string name = GgufTensorName(released_name);
    return name.empty() ? nullptr : index.Find(name);
  }
  const TensorInfo* weight = index.Find(released_name + ".weight");
  return weight ? weight : index.Find(released_name);
}

Result<ModelSource> OpenModelSource(const std::string& path) {
  if (!PathExists(path)) {
    return NotFound("%s: no such file or directory", path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(ModelSource source, IsDirectory(path)
                                                   ? OpenDirectory(path)
                                                   : OpenGgufSource(path));
  ECPHORY_RETURN_IF_ERROR(CheckTokenizer(source));
  ECPHORY_RETURN_IF_ERROR(CheckEngram(source));
  return source;
}

}  // namespace ecphory
