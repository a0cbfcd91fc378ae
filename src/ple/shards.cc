#include "ple/shards.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/little_endian.h"
#include "base/quote.h"
#include "format/safetensors.h"
#include "ple/model_config.h"
#include "tensor/float_codec.h"
#include "tensor/table_codec.h"

namespace ecphory::ple {

namespace {

constexpr std::string_view kMark = ".ple.ple_embedding.";
constexpr std::string_view kShard = "ngram_embedding.shard_";
constexpr std::string_view kWeight = ".weight";
// Shards and entries of the constants: more than any table has.
constexpr uint64_t kMaxShards = 1 << 16;
constexpr uint64_t kMaxConstants = kMaxHeads;

// The number in "...shard_12.weight" behind `prefix`, or nothing.
std::optional<uint64_t> ShardNumber(std::string_view name,
                                    std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(kWeight)) return {};
  name.remove_prefix(prefix.size());
  if (!name.starts_with(kShard)) return {};
  name.remove_prefix(kShard.size());
  name.remove_suffix(std::min(kWeight.size(), name.size()));
  uint64_t number;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return {};
  return number;
}

}  // namespace

// Opens a table step by step; each step needs those before it.
class ShardReader {
 public:
  ShardReader(const std::string& directory, TensorIndex index)
      : directory_(directory), index_(std::move(index)) {}

  Result<ShardedTable> Read(int32_t eos_id) {
    ECPHORY_RETURN_IF_ERROR(FindPrefix());
    ECPHORY_RETURN_IF_ERROR(CollectShards());
    ECPHORY_RETURN_IF_ERROR(CheckShards());
    ECPHORY_RETURN_IF_ERROR(ReadScale());
    ECPHORY_RETURN_IF_ERROR(ReadLayout(eos_id));
    ECPHORY_RETURN_IF_ERROR(CheckRows());
    ECPHORY_RETURN_IF_ERROR(AddParts());
    return std::move(table_);
  }

 private:
  std::string Label(const TensorInfo& tensor) const {
    return index_.files()[tensor.file].path + ": tensor " + Quoted(tensor.name);
  }

  // "model.language_model.layers.1.ple.ple_embedding.", the only one.
  Status FindPrefix() {
    for (const TensorInfo& tensor : index_.tensors()) {
      const size_t at = tensor.name.find(kMark);
      if (at == std::string::npos) continue;
      const std::string prefix = tensor.name.substr(0, at + kMark.size());
      if (prefix_.empty()) prefix_ = prefix;
      if (prefix == prefix_) continue;
      return Unsupported(
          "%s: n-gram tables %s and %s, expected that of one layer",
          directory_.c_str(), Quoted(prefix_).c_str(), Quoted(prefix).c_str());
    }
    if (!prefix_.empty()) return {};
    return NotFound("%s: no tensor is named *%sngram_embedding.shard_0.weight",
                    directory_.c_str(), std::string(kMark).c_str());
  }

  Status CollectShards() {
    for (const TensorInfo& tensor : index_.tensors()) {
      const auto number = ShardNumber(tensor.name, prefix_);
      if (!number) continue;
      if (*number >= kMaxShards) {
        return Unsupported("%s: expected shards 0..%" PRIu64,
                           Label(tensor).c_str(), kMaxShards - 1);
      }
      const auto [at, is_new] = shards_.emplace(*number, &tensor);
      if (!is_new) {
        return Corrupt("%s: shard %" PRIu64 " is also tensor %s",
                       Label(tensor).c_str(), *number,
                       Quoted(at->second->name).c_str());
      }
    }
    for (uint64_t i = 0; i < std::max<size_t>(1, shards_.size()); ++i) {
      if (shards_.count(i) > 0) continue;
      return NotFound("%s: tensor %s%s%" PRIu64 "%s is missing",
                      directory_.c_str(), prefix_.c_str(),
                      std::string(kShard).c_str(), i,
                      std::string(kWeight).c_str());
    }
    return {};
  }

  Status CheckShards() {
    const TensorInfo& first = *shards_.at(0);
    if (first.dtype != DType::kBF16 && first.dtype != DType::kF8E4M3) {
      return Unsupported("%s: type %s, expected BF16 or F8_E4M3",
                         Label(first).c_str(), DTypeName(first.dtype));
    }
    table_.dtype_ = first.dtype;
    for (const auto& [number, shard] : shards_) {
      if (shard->dtype != first.dtype) {
        return Corrupt("%s: type %s, shard 0 is %s", Label(*shard).c_str(),
                       DTypeName(shard->dtype), DTypeName(first.dtype));
      }
      if (shard->shape.size() != 2 || shard->shape[1] != first.shape.back()) {
        return Corrupt("%s: shape %s, shard 0 is %s", Label(*shard).c_str(),
                       shard->ShapeString().c_str(),
                       first.ShapeString().c_str());
      }
    }
    if (first.shape[1] <= kMaxWidth) return {};
    return Unsupported("%s: rows of %" PRIu64 " values, expected at most %u",
                       Label(first).c_str(), first.shape[1], kMaxWidth);
  }

  Status ReadBytes(const TensorInfo& tensor, std::vector<uint8_t>* out) const {
    out->resize(tensor.bytes);
    ECPHORY_ASSIGN_OR_RETURN(const auto file,
                             OpenFile(index_.files()[tensor.file].path));
    const Status status = file->ReadExact(tensor.offset, *out);
    return status.ok() ? status : status.WithContext(Label(tensor));
  }

  Status ReadScale() {
    const std::string name = prefix_ + "ngram_embedding.weight_scale";
    const TensorInfo* scale = index_.Find(name);
    if (table_.dtype_ == DType::kBF16) {
      if (scale == nullptr) return {};
      return Unsupported("%s: a scale of BF16 shards, expected none",
                         Label(*scale).c_str());
    }
    if (scale == nullptr) {
      return NotFound("%s: F8_E4M3 shards without tensor %s",
                      directory_.c_str(), Quoted(name).c_str());
    }
    const bool f32 = scale->dtype == DType::kF32;
    if (scale->values() != 1 || (!f32 && scale->dtype != DType::kBF16)) {
      return Corrupt("%s: %s %s, expected one F32 or BF16 value",
                     Label(*scale).c_str(), DTypeName(scale->dtype),
                     scale->ShapeString().c_str());
    }
    std::vector<uint8_t> bytes;
    ECPHORY_RETURN_IF_ERROR(ReadBytes(*scale, &bytes));
    table_.scale_ = f32 ? LoadLE<float>(bytes.data())
                        : BF16ToF32(LoadLE<uint16_t>(bytes.data()));
    if (std::isfinite(table_.scale_) && table_.scale_ > 0) return {};
    return Corrupt("%s: the scale is %g, expected a finite one above 0",
                   Label(*scale).c_str(), static_cast<double>(table_.scale_));
  }

  Status ReadConstants(const char* leaf, std::vector<uint64_t>* out) const {
    const std::string name = prefix_ + leaf;
    const TensorInfo* tensor = index_.Find(name);
    if (tensor == nullptr) {
      return NotFound("%s: tensor %s is missing", directory_.c_str(),
                      Quoted(name).c_str());
    }
    if (tensor->dtype != DType::kI64 || tensor->values() > kMaxConstants) {
      return Corrupt("%s: %s %s, expected at most %" PRIu64 " I64 values",
                     Label(*tensor).c_str(), DTypeName(tensor->dtype),
                     tensor->ShapeString().c_str(), kMaxConstants);
    }
    std::vector<uint8_t> bytes;
    ECPHORY_RETURN_IF_ERROR(ReadBytes(*tensor, &bytes));
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const int64_t value = LoadLE<int64_t>(bytes.data() + i);
      if (value < 0) {
        return Corrupt("%s: value %zu is %" PRId64 ", expected none below 0",
                       Label(*tensor).c_str(), i / 8, value);
      }
      out->push_back(static_cast<uint64_t>(value));
    }
    return {};
  }

  Status ReadLayout(int32_t eos_id) {
    Layout& layout = table_.layout_;
    ECPHORY_RETURN_IF_ERROR(
        ReadConstants("layer_multipliers", &layout.multipliers));
    ECPHORY_RETURN_IF_ERROR(
        ReadConstants("ngram_heads_offsets", &layout.offsets));
    ECPHORY_RETURN_IF_ERROR(
        ReadConstants("ngram_heads_vocab_sizes", &layout.sizes));
    const size_t ngram = layout.multipliers.size();
    if (ngram < 2 || layout.sizes.size() % (ngram - 1) != 0) {
      return Corrupt("%s: %zu multipliers and %zu heads", directory_.c_str(),
                     ngram, layout.sizes.size());
    }
    layout.ngram_size = static_cast<uint32_t>(ngram);
    layout.heads_per_ngram =
        static_cast<uint32_t>(layout.sizes.size() / (ngram - 1));
    layout.width = static_cast<uint32_t>(shards_.at(0)->shape[1]);
    layout.vocab_size = LargestVocab(layout.multipliers);
    layout.eos_id = eos_id;
    const Status status = CheckLayout(layout);
    if (!status.ok()) return status.WithContext(directory_);
    return CheckModelConfig(directory_, layout);
  }

  Status CheckRows() const {
    uint64_t rows = 0;
    for (const auto& [number, shard] : shards_) {
      if (!CheckedAdd(rows, shard->shape[0], &rows)) rows = UINT64_MAX;
    }
    if (rows == table_.rows()) return {};
    return Corrupt("%s: %zu shards have %" PRIu64 " rows, expected %" PRIu64
                   " (%" PRIu64
                   " of the heads, padded to a multiple of %" PRIu64 ")",
                   directory_.c_str(), shards_.size(), rows, table_.rows(),
                   table_.layout_.rows(), kRowPadding);
  }

  Status AddParts() {
    for (const ModelFile& file : index_.files()) {
      table_.files_.push_back(file.path);
    }
    std::map<size_t, std::shared_ptr<RandomAccessFile>> files;
    uint64_t first_row = 0;
    for (const auto& [number, shard] : shards_) {
      auto& file = files[shard->file];
      if (file == nullptr) {
        ECPHORY_ASSIGN_OR_RETURN(file,
                                 OpenFile(index_.files()[shard->file].path));
      }
      const uint64_t rows = shard->shape[0];
      if (rows == 0) continue;
      table_.parts_.push_back(
          {file, shard->name, shard->offset, first_row, rows});
      first_row += rows;
    }
    return {};
  }

  const std::string directory_;
  const TensorIndex index_;
  std::string prefix_;
  std::map<uint64_t, const TensorInfo*> shards_;  // by number
  ShardedTable table_;
};

Result<ShardedTable> ShardedTable::Open(const std::string& directory,
                                        int32_t eos_id) {
  ECPHORY_ASSIGN_OR_RETURN(TensorIndex index,
                           OpenSafetensorsDirectory(directory));
  return ShardReader(directory, std::move(index)).Read(eos_id);
}

Result<bool> HasShards(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return false;
  ECPHORY_ASSIGN_OR_RETURN(const TensorIndex index,
                           OpenSafetensorsDirectory(path));
  return std::any_of(index.tensors().begin(), index.tensors().end(),
                     [](const TensorInfo& tensor) {
                       return tensor.name.find(kMark) != std::string::npos;
                     });
}

}  // namespace ecphory::ple
