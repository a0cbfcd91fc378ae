#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/quote.h"
#include "format/safetensors.h"
#include "format/strict_json.h"

namespace ecphory {

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
// The released model's index, 96,085 tensors, takes about 10 MB.
constexpr uint64_t kMaxIndexBytes = 128ull << 20;

// Tensor name -> shard file name.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// {"metadata": {"total_size": 1, ...}, "weight_map": {"tensor": "shard", ...}}
class IndexHandler : public StrictJsonHandler {
 public:
  bool has_weight_map() const { return seen_.count("weight_map") > 0; }
  WeightMap TakeWeightMap() { return std::move(weight_map_); }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && section_ == "weight_map") {
      place_ = Place::kWeightMap;
    } else if (place_ == Place::kTop && section_ == "metadata") {
      place_ = Place::kMetadata;
    } else {
      return Fail("unexpected object");
    }
    return true;
  }

  bool key(std::string& key) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ == Place::kWeightMap) {
      tensor_ = key;
      return tensors_.insert(key).second || Fail("appears twice");
    }
    section_ = key;
    return seen_.insert(key).second || Fail("appears twice");
  }

  bool string(std::string& value) override {
    if (place_ == Place::kWeightMap) {
      weight_map_.emplace_back(tensor_, value);
      return true;
    }
    return Scalar();
  }

  bool end_object() override {
    place_ = Place::kTop;
    tensor_.clear();
    return true;
  }

  bool null() override { return Scalar(); }
  bool boolean(bool) override { return Scalar(); }
  bool number_integer(int64_t) override { return Scalar(); }
  bool number_unsigned(uint64_t) override { return Scalar(); }
  bool number_float(double, const std::string&) override { return Scalar(); }

 private:
  enum class Place { kStart, kTop, kMetadata, kWeightMap };

  // Metadata may hold plain values of any kind; nothing else may.
  bool Scalar() {
    if (place_ == Place::kMetadata) return true;
    return Fail(place_ == Place::kWeightMap ? "expected a file name"
                                            : "unexpected value");
  }

  std::string Where() const override {
    std::string where;
    if (!section_.empty()) where = Quoted(section_) + ": ";
    if (!tensor_.empty()) where += Quoted(tensor_) + ": ";
    return where;
  }

  Place place_ = Place::kStart;
  std::string section_;
  std::string tensor_;
  std::unordered_set<std::string> seen_;
  std::unordered_set<std::string> tensors_;
  WeightMap weight_map_;
};

// A shard lies beside its index: no separators, no "..", no NUL.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

Result<WeightMap> ReadWeightMap(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, kMaxIndexBytes));
  IndexHandler handler;
  const Status parsed = handler.Parse(text);
  if (!parsed.ok()) return parsed.WithContext(path);
  if (!handler.has_weight_map()) {
    return Corrupt("%s: has no \"weight_map\"", path.c_str());
  }
  WeightMap map = handler.TakeWeightMap();
  for (const auto& [tensor, shard] : map) {
    if (!IsPlainFileName(shard)) {
      return Corrupt("%s: tensor %s is placed in %s, expected a file name",
                     path.c_str(), Quoted(tensor).c_str(),
                     Quoted(shard).c_str());
    }
  }
  return map;
}

Status AddShard(const std::string& path, TensorIndex* index) {
  ECPHORY_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  const size_t number = index->AddFile({path, file->size()});
  return ParseSafetensors(*file, number, index);
}

std::string Join(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

// Every tensor must be where the map says, and the map must say it of all.
Status CheckAgainstMap(const std::string& index_path, const WeightMap& map,
                       const std::map<std::string, size_t>& shard_numbers,
                       const TensorIndex& index) {
  for (const auto& [name, shard] : map) {
    const TensorInfo* tensor = index.Find(name);
    if (tensor == nullptr || tensor->file != shard_numbers.at(shard)) {
      return Corrupt(
          "%s: tensor %s should be in %s but is %s%s", index_path.c_str(),
          Quoted(name).c_str(), Quoted(shard).c_str(),
          tensor == nullptr ? "missing" : "in ",
          tensor == nullptr ? "" : index.files()[tensor->file].path.c_str());
    }
  }
  if (map.size() == index.tensors().size()) return Status::Ok();
  std::unordered_set<std::string> mapped;
  for (const auto& entry : map) mapped.insert(entry.first);
  for (const TensorInfo& tensor : index.tensors()) {
    if (mapped.count(tensor.name) > 0) continue;
    return Corrupt("%s: does not list tensor %s of %s", index_path.c_str(),
                   Quoted(tensor.name).c_str(),
                   index.files()[tensor.file].path.c_str());
  }
  return Status::Ok();
}

Result<TensorIndex> OpenIndexed(const std::string& directory,
                                const std::string& index_path) {
  ECPHORY_ASSIGN_OR_RETURN(const WeightMap map, ReadWeightMap(index_path));
  std::map<std::string, std::string> first_tensor;  // of each shard
  for (const auto& [tensor, shard] : map) first_tensor.emplace(shard, tensor);

  TensorIndex index;
  std::map<std::string, size_t> numbers;
  for (const auto& [shard, tensor] : first_tensor) {
    numbers[shard] = index.files().size();
    const Status added = AddShard(Join(directory, shard), &index);
    if (added.code() == StatusCode::kNotFound) {
      return NotFound("%s: shard %s is missing (it should hold tensor %s)",
                      index_path.c_str(), Quoted(shard).c_str(),
                      Quoted(tensor).c_str());
    }
    ECPHORY_RETURN_IF_ERROR(added);
  }
  ECPHORY_RETURN_IF_ERROR(CheckAgainstMap(index_path, map, numbers, index));
  ECPHORY_RETURN_IF_ERROR(index.Finish());
  return index;
}

// Names of the directory's safetensors files, sorted.
Result<std::vector<std::string>> ListShards(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  const std::filesystem::directory_iterator end;
  while (!error && entry != end) {
    if (entry->path().extension() == ".safetensors") {
      names.push_back(entry->path().filename().string());
    }
    entry.increment(error);
  }
  if (error) {
    return NotFound("%s: cannot list this directory: %s", directory.c_str(),
                    error.message().c_str());
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    return NotFound("%s: holds no *.safetensors file", directory.c_str());
  }
  return names;
}

// "model-00002-of-00005.safetensors": part 2 of 5 of "model".
struct PartName {
  std::string stem;
  unsigned part = 0;
  unsigned parts = 0;
};

std::optional<PartName> ParsePartName(const std::string& name) {
  char stem[256];
  PartName out;
  int used = 0;
  if (std::sscanf(name.c_str(), "%255[^-]-%5u-of-%5u.safetensors%n", stem,
                  &out.part, &out.parts, &used) != 3 ||
      static_cast<size_t>(used) != name.size()) {
    return std::nullopt;
  }
  out.stem = stem;
  return out;
}

// Without an index only the names tell that a download is incomplete.
Status CheckNumberedSets(const std::string& directory,
                         const std::vector<std::string>& shards) {
  std::map<std::pair<std::string, unsigned>, std::set<unsigned>> sets;
  for (const std::string& shard : shards) {
    const auto name = ParsePartName(shard);
    if (name) sets[{name->stem, name->parts}].insert(name->part);
  }
  for (const auto& [set, present] : sets) {
    for (unsigned part = 1; part <= set.second; ++part) {
      if (present.count(part) > 0) continue;
      return NotFound("%s: part %u of %u of %s is missing", directory.c_str(),
                      part, set.second, Quoted(set.first).c_str());
    }
  }
  return Status::Ok();
}

}  // namespace

Result<TensorIndex> OpenSafetensorsDirectory(const std::string& directory) {
  const std::string index_path = Join(directory, kIndexFile);
  std::error_code ignored;
  if (std::filesystem::exists(index_path, ignored)) {
    return OpenIndexed(directory, index_path);
  }
  ECPHORY_ASSIGN_OR_RETURN(std::vector<std::string> shards,
                           ListShards(directory));
  if (std::find(shards.begin(), shards.end(), kSingleFile) != shards.end()) {
    shards = {kSingleFile};
  }
  ECPHORY_RETURN_IF_ERROR(CheckNumberedSets(directory, shards));
  TensorIndex index;
  for (const std::string& shard : shards) {
    ECPHORY_RETURN_IF_ERROR(AddShard(Join(directory, shard), &index));
  }
  ECPHORY_RETURN_IF_ERROR(index.Finish());
  return index;
}

}  // namespace ecphory
