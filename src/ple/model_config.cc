#include "ple/model_config.h"

#include <cinttypes>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "format/json_keys.h"
#include "io/file.h"

namespace ecphory::ple {

namespace {

Status CheckValue(FieldReader* fields, const char* key, uint64_t expected) {
  uint64_t found = expected;
  fields->Optional(key, &found);
  if (found == expected) return {};
  return Corrupt("%s is %" PRIu64 ", the table's constants make it %" PRIu64,
                 fields->source().Spelling(key).c_str(), found, expected);
}

Status CheckLayers(FieldReader* fields) {
  std::vector<uint64_t> layers = {1};
  fields->Optional("ple_layer_ids", &layers);
  if (layers.size() == 1) return {};
  return Unsupported("%s: %zu layers have a table, expected exactly 1",
                     fields->source().Spelling("ple_layer_ids").c_str(),
                     layers.size());
}

// Some configurations have a list, which does not say which one cuts.
Status CheckEos(const KeySource& keys, int32_t eos_id) {
  if (!keys.Has("eos_token_id")) return {};
  const Result<uint64_t> found = keys.Uint("eos_token_id");
  if (!found.ok() || *found == static_cast<uint64_t>(eos_id)) return {};
  return Corrupt("%s is %" PRIu64 ", expected %d, the id given",
                 keys.Spelling("eos_token_id").c_str(), *found, eos_id);
}

Status CheckKeys(const KeySource& keys, const Layout& layout) {
  FieldReader fields(keys);
  ECPHORY_RETURN_IF_ERROR(CheckValue(&fields, "ngram_size", layout.ngram_size));
  ECPHORY_RETURN_IF_ERROR(
      CheckValue(&fields, "heads_per_ngram", layout.heads_per_ngram));
  ECPHORY_RETURN_IF_ERROR(CheckValue(&fields, "ple_embed_dim",
                                     uint64_t{layout.heads()} * layout.width));
  ECPHORY_RETURN_IF_ERROR(CheckLayers(&fields));
  ECPHORY_RETURN_IF_ERROR(fields.status());
  return CheckEos(keys, layout.eos_id);
}

}  // namespace

Status CheckModelConfig(const std::string& directory, const Layout& layout) {
  const std::string path = directory + "/config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, kMaxConfigBytes));
  ECPHORY_ASSIGN_OR_RETURN(const auto keys, ParseJsonKeys(text, path));
  const Status status = CheckKeys(*keys, layout);
  return status.ok() ? status : status.WithContext(path);
}

}  // namespace ecphory::ple
