#include "engram/source_numbers.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "engram/config.h"
#include "engram/layout.h"
#include "format/field_reader.h"
#include "format/gguf_keys.h"
#include "format/json_keys.h"
#include "format/npy.h"
#include "text/token_map.h"

namespace ecphory::engram {

namespace {

using Ull = unsigned long long;

// A header is far below this.
constexpr uint64_t kMaxHeaderBytes = 65536;

Status CheckMapShape(const NpyArray& array, uint32_t vocab_size,
                     const std::string& path) {
  const bool one_dimension = array.shape.size() == 1;
  if (one_dimension && (vocab_size == 0 || array.shape[0] == vocab_size)) {
    return {};
  }
  return Corrupt(
      "%s: found %zu-dimensional shape of %llu values, expected "
      "[%s] (vocab_size)",
      path.c_str(), array.shape.size(), static_cast<Ull>(array.count()),
      vocab_size == 0 ? "tokens" : std::to_string(vocab_size).c_str());
}

LayoutSpec SpecOf(const EngramConfig& e) {
  return {.layer_ids = e.layer_ids,
          .max_ngram = e.max_ngram,
          .heads = e.heads,
          .vocab_size = e.vocab_size,
          .compressed_vocab_size = e.compressed_vocab_size};
}

Status CompareLayouts(const Layout& stored, const Layout& derived) {
  for (size_t i = 0; i < stored.layers.size(); ++i) {
    const uint32_t layer = stored.layers[i].layer_id;
    if (stored.layers[i].primes != derived.layers[i].primes) {
      return Corrupt(
          "engram.primes of layer %u: not those that "
          "engram_vocab_size gives",
          layer);
    }
    if (stored.layers[i].multipliers != derived.layers[i].multipliers) {
      return Corrupt(
          "engram.multipliers of layer %u: not those that "
          "engram_compressed_vocab_size gives",
          layer);
    }
  }
  return {};
}

// The stored numbers where there are any, else the derived ones; both, when
// both are known, must agree.
Result<Layout> MakeLayout(const EngramConfig& e) {
  const LayoutSpec spec = SpecOf(e);
  if (e.primes.empty()) return DeriveLayout(spec);
  ECPHORY_ASSIGN_OR_RETURN(Layout stored,
                           LayoutFromNumbers(spec, e.primes, e.multipliers));
  if (e.vocab_size != 0) {
    ECPHORY_ASSIGN_OR_RETURN(const Layout derived, DeriveLayout(spec));
    ECPHORY_RETURN_IF_ERROR(CompareLayouts(stored, derived));
  }
  return stored;
}

Status CheckRowCounts(const EngramConfig& e, const Layout& layout) {
  for (size_t i = 0; i < e.rows.size(); ++i) {
    if (layout.layers[i].rows == e.rows[i]) continue;
    return Corrupt(
        "Engram layer %u: primes give %llu rows, expected %llu as "
        "in engram_num_embeddings",
        e.layer_ids[i], static_cast<Ull>(layout.layers[i].rows),
        static_cast<Ull>(e.rows[i]));
  }
  return {};
}

Status CheckTokenMap(const EngramConfig& e, uint32_t vocab_size,
                     const std::vector<int32_t>& map) {
  if (map.size() != vocab_size) {
    return Corrupt("token map: found %zu entries, expected %u (vocab_size)",
                   map.size(), vocab_size);
  }
  const uint32_t classes = e.compressed_vocab_size;
  for (size_t id = 0; id < map.size(); ++id) {
    if (map[id] >= 0 && static_cast<uint32_t>(map[id]) < classes) continue;
    return Corrupt(
        "token map: token %zu has compressed id %d, expected "
        "0..%u (engram_compressed_vocab_size - 1)",
        id, map[id], classes - 1);
  }
  return {};
}

int32_t PadId(const EngramConfig& e, const std::vector<int32_t>& token_map) {
  return e.pad_compressed_id >= 0 ? static_cast<int32_t>(e.pad_compressed_id)
                                  : token_map[e.pad_token_id];
}

Result<Hasher> BuildHasher(const EngramConfig& e, uint32_t vocab_size,
                           const std::vector<int32_t>& token_map) {
  ECPHORY_RETURN_IF_ERROR(CheckTokenMap(e, vocab_size, token_map));
  ECPHORY_ASSIGN_OR_RETURN(Layout layout, MakeLayout(e));
  ECPHORY_RETURN_IF_ERROR(CheckRowCounts(e, layout));
  return Hasher::Create(std::move(layout), token_map, PadId(e, token_map));
}

// What both kinds of configuration end with.
Status FinishNumbers(FieldReader* f, const std::string& layers_key,
                     Numbers* numbers) {
  f->Optional("vocab_size", &numbers->vocab_size);
  f->Optional("image_token_id", &numbers->image_token_id);
  ECPHORY_RETURN_IF_ERROR(f->status());
  if (!numbers->config.enabled()) {
    return NotFound("no Engram: expected %s",
                    f->source().Spelling(layers_key).c_str());
  }
  const uint32_t vocab_size =
      numbers->vocab_size == 0 ? kMaxVocab : numbers->vocab_size;
  return CheckConfig(numbers->config, vocab_size, kMaxLayers);
}

// GgufFile's own errors name the file already.
Status NamingFile(const Status& status, const std::string& path) {
  const bool named = status.ok() || status.message().rfind(path, 0) == 0;
  return named ? status : status.WithContext(path);
}

// The config.json that converters store whole has what the primes came from.
Status ReadEmbedded(const GgufFile& file, Numbers* numbers) {
  const std::string key = std::string(kGgufPrefix) + "config";
  if (!file.Has(key)) return {};
  ECPHORY_ASSIGN_OR_RETURN(const std::string text, file.GetString(key));
  ECPHORY_ASSIGN_OR_RETURN(const auto keys, ParseJsonKeys(text, key));
  FieldReader f(*keys);
  ReadEmbeddedConfig(&f, &numbers->config);
  if (numbers->image_token_id < 0) {
    f.Optional("image_token_id", &numbers->image_token_id);
  }
  return f.status().ok() ? Status() : f.status().WithContext(key);
}

}  // namespace

Result<Numbers> ReadGgufNumbers(const GgufFile& file) {
  const GgufKeySource keys(file, kGgufPrefix);
  FieldReader f(keys);
  Numbers numbers;
  ReadGgufConfig(&f, &numbers.config);
  Status status = FinishNumbers(&f, "engram.layer_ids", &numbers);
  if (status.ok()) status = ReadEmbedded(file, &numbers);
  if (!status.ok()) return NamingFile(status, file.path());
  return numbers;
}

Result<Numbers> ReadJsonNumbers(const std::string& text,
                                const std::string& where) {
  ECPHORY_ASSIGN_OR_RETURN(const auto keys, ParseJsonKeys(text, where));
  FieldReader f(*keys);
  Numbers numbers;
  ReadJsonConfig(&f, &numbers.config);
  const Status status = FinishNumbers(&f, "engram_layer_ids", &numbers);
  if (!status.ok()) return status.WithContext(where);
  return numbers;
}

Result<std::vector<int32_t>> ReadGgufTokenMap(const GgufFile& file) {
  const std::string key = std::string(kGgufPrefix) + "engram.token_map";
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<uint64_t> ids,
                           file.GetUintArray(key));
  std::vector<int32_t> map(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
      return Corrupt("%s: %s[%zu]: found %llu, expected a compressed id",
                     file.path().c_str(), key.c_str(), i,
                     static_cast<Ull>(ids[i]));
    }
    map[i] = static_cast<int32_t>(ids[i]);
  }
  return map;
}

Result<std::vector<int32_t>> ReadTokenMapFile(const std::string& path,
                                              uint32_t vocab_size) {
  ECPHORY_ASSIGN_OR_RETURN(
      const NpyArray array,
      ReadNpy(path, uint64_t{vocab_size == 0 ? kMaxVocab : vocab_size} * 8 +
                        kMaxHeaderBytes));
  ECPHORY_RETURN_IF_ERROR(CheckMapShape(array, vocab_size, path));
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

Result<std::vector<int32_t>> MapOfTokenizer(const Tokenizer& tokenizer,
                                            const EngramConfig& config,
                                            const std::string& where) {
  ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> map, BuildTokenMap(tokenizer));
  const int32_t classes =
      map.empty() ? 0 : *std::max_element(map.begin(), map.end()) + 1;
  const uint32_t expected = config.compressed_vocab_size;
  if (static_cast<uint32_t>(classes) == expected) return map;
  return Corrupt(
      "%s: the tokenizer gives %d compressed ids, expected %u "
      "(engram_compressed_vocab_size)",
      where.c_str(), classes, expected);
}

Result<std::vector<int32_t>> DirectoryTokenMap(const std::string& directory,
                                               const EngramConfig& config,
                                               uint32_t vocab_size,
                                               const Tokenizer* tokenizer) {
  const std::string path = directory + "/token_map.npy";
  std::error_code ignored;
  // A link to nothing counts: reading it then says what is missing.
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    return ReadTokenMapFile(path, vocab_size);
  }
  if (tokenizer != nullptr) {
    return MapOfTokenizer(*tokenizer, config, directory);
  }
  return NotFound(
      "%s: no tokenizer.json and no token_map.npy, expected one of "
      "them for a model with Engram",
      directory.c_str());
}

Result<Hasher> MakeHasher(const EngramConfig& config, uint32_t vocab_size,
                          const std::vector<int32_t>& token_map,
                          const std::string& where) {
  Result<Hasher> hasher = BuildHasher(config, vocab_size, token_map);
  if (!hasher.ok()) return hasher.status().WithContext(where);
  return hasher;
}

}  // namespace ecphory::engram
