#include "ple/gguf_keys.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

namespace ecphory::ple {

namespace {

// Layers a model may have: bounds what a key makes us allocate.
constexpr uint64_t kMaxLayers = 1 << 16;
constexpr uint64_t kDefaultInterval = 4;  // of layers with full attention

// The keys of one architecture in one file.
class Keys {
 public:
  Keys(const GgufFile* file, std::string prefix)
      : file_(file), prefix_(std::move(prefix)) {}

  const GgufFile& file() const { return *file_; }
  std::string Key(const char* name) const { return prefix_ + name; }
  bool Has(const char* name) const { return file_->Has(Key(name)); }
  const GgufValue* Find(const char* name) const {
    return file_->Find(Key(name));
  }
  Result<std::vector<uint64_t>> Array(const char* name) const {
    return file_->GetUintArray(Key(name));
  }
  Result<uint64_t> Uint(const char* name) const {
    return file_->GetUint(Key(name));
  }
  Result<uint32_t> Uint32(const char* name) const {
    ECPHORY_ASSIGN_OR_RETURN(const uint64_t value, Uint(name));
    if (value <= UINT32_MAX) return static_cast<uint32_t>(value);
    return Corrupt("%s: key %s is %" PRIu64 ", expected at most 2^32 - 1",
                   file_->path().c_str(), Key(name).c_str(), value);
  }
  // The file's own errors name it already.
  Status Error(const Status& status) const {
    const bool named = status.message().rfind(file_->path(), 0) == 0;
    return named ? status : status.WithContext(file_->path());
  }

 private:
  const GgufFile* file_;
  std::string prefix_;
};

constexpr const char* kPrefixes[] = {"qwen4exp.", "qwen38-next."};
constexpr char kMultipliers[] = "ple.layer_multipliers";
constexpr char kOffsets[] = "ple.head_offsets";
constexpr char kSizes[] = "ple.head_vocab_sizes";

// Every file's keys, of files with any of a table's or of its model's.
std::vector<Keys> AllKeys(std::span<const GgufFile* const> files) {
  std::vector<Keys> all;
  for (const GgufFile* file : files) {
    for (const char* prefix : kPrefixes) {
      const Keys keys(file, prefix);
      if (keys.Has(kMultipliers) || keys.Has("ple.eos_token_id") ||
          keys.Has("ple.layers") || keys.Has("ple.layer")) {
        all.push_back(keys);
      }
    }
  }
  return all;
}

struct Arrays {
  std::vector<uint64_t> multipliers, offsets, sizes;
  bool operator==(const Arrays&) const = default;
};

Result<Arrays> ReadArrays(const Keys& keys) {
  Arrays arrays;
  ECPHORY_ASSIGN_OR_RETURN(arrays.multipliers, keys.Array(kMultipliers));
  ECPHORY_ASSIGN_OR_RETURN(arrays.offsets, keys.Array(kOffsets));
  ECPHORY_ASSIGN_OR_RETURN(arrays.sizes, keys.Array(kSizes));
  return arrays;
}

// A file that repeats the constants must agree.
Status CheckOthers(const std::vector<Keys>& all, const Keys& chosen,
                   const Arrays& arrays) {
  for (const Keys& keys : all) {
    if (!keys.Has(kMultipliers)) continue;
    ECPHORY_ASSIGN_OR_RETURN(const Arrays others, ReadArrays(keys));
    if (others == arrays) continue;
    return Corrupt("%s: its n-gram constants are not those of %s",
                   keys.file().path().c_str(), chosen.file().path().c_str());
  }
  return {};
}

// A sidecar has neither size: they follow from the arrays.
Status ReadSizes(const Keys& keys, const Arrays& arrays, Layout* layout) {
  if (keys.Has("ple.ngram_size")) {
    ECPHORY_ASSIGN_OR_RETURN(layout->ngram_size, keys.Uint32("ple.ngram_size"));
    ECPHORY_ASSIGN_OR_RETURN(layout->heads_per_ngram,
                             keys.Uint32("ple.heads_per_ngram"));
    return {};
  }
  const size_t ngram = arrays.multipliers.size(), heads = arrays.sizes.size();
  if (ngram < 2 || ngram > kMaxNgram || heads > kMaxHeads ||
      heads % (ngram - 1) != 0) {
    return Corrupt(
        "key %s has %zu entries and %s %zu, expected 2..%u and a "
        "multiple of one less",
        keys.Key(kMultipliers).c_str(), ngram, keys.Key(kSizes).c_str(), heads,
        kMaxNgram);
  }
  layout->ngram_size = static_cast<uint32_t>(ngram);
  layout->heads_per_ngram = static_cast<uint32_t>(heads / (ngram - 1));
  return {};
}

// Every file that says a size must say this one: short arrays give another.
Status CheckSizes(const std::vector<Keys>& all, const Layout& layout) {
  const std::pair<const char*, uint32_t> sizes[] = {
      {"ple.ngram_size", layout.ngram_size},
      {"ple.heads_per_ngram", layout.heads_per_ngram}};
  for (const Keys& keys : all) {
    for (const auto& [name, size] : sizes) {
      if (!keys.Has(name)) continue;
      ECPHORY_ASSIGN_OR_RETURN(const uint64_t found, keys.Uint(name));
      if (found == size) continue;
      return Corrupt("%s: key %s is %" PRIu64 ", the constants make it %u",
                     keys.file().path().c_str(), keys.Key(name).c_str(), found,
                     size);
    }
  }
  return {};
}

Result<uint32_t> ReadWidth(const Keys& keys) {
  const char* name = "embedding_length_per_layer_input";
  return keys.Uint32(keys.Has(name) ? name : "ple.row_length");
}

// A token id that `all` and the caller may each say; they must agree. The file
// that says it is named.
Result<std::optional<int32_t>> ReadId(const std::vector<Keys>& all,
                                      const char* name,
                                      std::optional<int32_t> given) {
  std::optional<int32_t> id = given;
  for (const Keys& keys : all) {
    if (!keys.Has(name)) continue;
    ECPHORY_ASSIGN_OR_RETURN(const uint64_t value, keys.Uint(name));
    if (value > INT32_MAX || (id && *id != static_cast<int64_t>(value))) {
      return Corrupt("%s: key %s is %" PRIu64 ", expected %s",
                     keys.file().path().c_str(), keys.Key(name).c_str(), value,
                     id ? std::to_string(*id).c_str() : "a token id");
    }
    id = static_cast<int32_t>(value);
  }
  return id;
}

Status ReadIds(const std::vector<Keys>& all, const TableOptions& options,
               Layout* layout) {
  ECPHORY_ASSIGN_OR_RETURN(const std::optional<int32_t> eos,
                           ReadId(all, "ple.eos_token_id", options.eos_id));
  if (!eos) {
    return NotFound(
        "no file has key ple.eos_token_id: give the model's EOS token id "
        "(--eos), which cuts the look-back");
  }
  layout->eos_id = *eos;
  ECPHORY_ASSIGN_OR_RETURN(layout->image_id,
                           ReadId(all, "ple.image_token_id", options.image_id));
  layout->vocab_size =
      options.vocab_size.value_or(LargestVocab(layout->multipliers));
  return {};
}

// Whether each of `count` layers has a recurrent state: a list of booleans, a
// list of types (0 is such a layer), or every interval-th has none.
Result<std::vector<bool>> LinearLayers(const Keys& keys, uint64_t count) {
  std::vector<bool> linear(count);
  const GgufValue* flags = keys.Find("attention.recurrent_layers");
  const bool is_type = flags == nullptr;
  if (is_type) flags = keys.Find("layer_types");
  if (flags != nullptr) {
    const auto* values = std::get_if<std::vector<uint64_t>>(&flags->value);
    if (values == nullptr || values->size() != count) {
      return Corrupt("the kinds of layers are no list of %" PRIu64
                     " flags (attention.recurrent_layers, layer_types)",
                     count);
    }
    for (size_t i = 0; i < count; ++i)
      linear[i] = ((*values)[i] == 0) == is_type;
    return linear;
  }
  uint64_t interval = kDefaultInterval;
  if (keys.Has("full_attention_interval")) {
    ECPHORY_ASSIGN_OR_RETURN(interval, keys.Uint("full_attention_interval"));
  }
  if (interval == 0) {
    return Corrupt("key full_attention_interval is 0, expected at least 1");
  }
  for (size_t i = 0; i < count; ++i) linear[i] = (i + 1) % interval != 0;
  return linear;
}

Result<uint32_t> ReadLayer(const Keys& keys) {
  Placement placement;
  if (keys.Has("ple.layers")) {
    ECPHORY_ASSIGN_OR_RETURN(const auto layers, keys.Array("ple.layers"));
    for (const uint64_t layer : layers) {
      placement.layers.push_back(
          static_cast<uint32_t>(std::min<uint64_t>(layer, UINT32_MAX)));
    }
  } else {
    ECPHORY_ASSIGN_OR_RETURN(const uint32_t layer, keys.Uint32("ple.layer"));
    placement.layers = {layer};
  }
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t count, keys.Uint("block_count"));
  if (count > kMaxLayers) {
    return Unsupported("key block_count is %" PRIu64
                       ", expected at most %" PRIu64,
                       count, kMaxLayers);
  }
  ECPHORY_ASSIGN_OR_RETURN(placement.linear, LinearLayers(keys, count));
  ECPHORY_ASSIGN_OR_RETURN(placement.streams,
                           keys.Uint32("hyper_connection.count"));
  ECPHORY_RETURN_IF_ERROR(CheckPlacement(placement));
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t kernel, keys.Uint("ple.conv_kernel"));
  if (kernel == 0) {
    return Corrupt("key ple.conv_kernel is 0, expected at least 1");
  }
  return placement.layers[0];
}

Status CheckTotal(const Keys& keys, const Layout& layout) {
  if (!keys.Has("ple.total_rows")) return {};
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t total, keys.Uint("ple.total_rows"));
  if (total == layout.rows()) return {};
  return Corrupt("key %s is %" PRIu64 ", the heads have %" PRIu64 " rows",
                 keys.Key("ple.total_rows").c_str(), total, layout.rows());
}

Status ReadLayout(const Keys& keys, const std::vector<Keys>& all,
                  const TableOptions& options, Arrays arrays, Layout* layout) {
  ECPHORY_RETURN_IF_ERROR(ReadSizes(keys, arrays, layout));
  ECPHORY_RETURN_IF_ERROR(CheckSizes(all, *layout));
  ECPHORY_ASSIGN_OR_RETURN(layout->width, ReadWidth(keys));
  layout->multipliers = std::move(arrays.multipliers);
  layout->sizes = std::move(arrays.sizes);
  layout->offsets = std::move(arrays.offsets);
  ECPHORY_RETURN_IF_ERROR(ReadIds(all, options, layout));
  ECPHORY_RETURN_IF_ERROR(CheckLayout(*layout));
  return CheckTotal(keys, *layout);
}

}  // namespace

bool HasConstants(const GgufFile& file) {
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* prefix) {
                       return Keys(&file, prefix).Has(kMultipliers);
                     });
}

Result<Constants> ReadConstants(std::span<const GgufFile* const> files,
                                const TableOptions& options) {
  const std::vector<Keys> all = AllKeys(files);
  const Keys* keys = nullptr;
  for (const Keys& candidate : all) {
    if (keys == nullptr && candidate.Has(kMultipliers)) keys = &candidate;
  }
  if (keys == nullptr) {
    return NotFound("no file has key %s%s or %s%s", kPrefixes[0], kMultipliers,
                    kPrefixes[1], kMultipliers);
  }
  ECPHORY_ASSIGN_OR_RETURN(Arrays arrays, ReadArrays(*keys));
  ECPHORY_RETURN_IF_ERROR(CheckOthers(all, *keys, arrays));
  Constants constants;
  const Status status =
      ReadLayout(*keys, all, options, std::move(arrays), &constants.layout);
  if (!status.ok()) return keys->Error(status);
  for (const Keys& model : all) {
    if (!model.Has("ple.layers") && !model.Has("ple.layer")) continue;
    const auto layer = ReadLayer(model);
    if (!layer.ok()) return model.Error(layer.status());
    constants.layer = *layer;
  }
  if (keys->Has("ple.table_rows")) {
    ECPHORY_ASSIGN_OR_RETURN(constants.table_rows,
                             keys->Uint("ple.table_rows"));
  }
  return constants;
}

}  // namespace ecphory::ple
