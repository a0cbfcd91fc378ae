#include "model/engram_source.h"

#include "engram/config.h"
#include "engram/source_numbers.h"

namespace ecphory {

namespace {

engram::TableDirectory Tables(const ModelSource& source) {
  return {.path = source.path,
          .naming = source.format == "gguf" ? engram::TensorNaming::kGguf
                                            : engram::TensorNaming::kReleased,
          .index = &source.index,
          .config = &source.config.engram};
}

}  // namespace

Result<StoredTable> FindTable(const ModelSource& source, size_t index) {
  return engram::FindTable(Tables(source), index);
}

std::vector<const TensorInfo*> EngramTableTensors(const ModelSource& source) {
  return engram::TableTensors(Tables(source));
}

Status CheckEngram(const ModelSource& source) {
  ECPHORY_RETURN_IF_ERROR(engram::RefuseUnmentionedTensors(Tables(source)));
  const EngramConfig& e = source.config.engram;
  if (!e.enabled()) return {};
  for (size_t i = 0; i < e.layer_ids.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(FindTable(source, i).status());
  }
  return MakeHasher(source).status();
}

Result<engram::Hasher> MakeHasher(const ModelSource& source) {
  if (!source.config.engram.enabled()) {
    return InvalidArgument("%s: the model has no Engram", source.path.c_str());
  }
  return engram::MakeHasher(source.config.engram, source.config.vocab_size,
                            source.token_map, source.path);
}

Result<std::vector<engram::TableSource>> EngramTables(
    const ModelSource& source) {
  return engram::OpenTables(Tables(source));
}

}  // namespace ecphory
