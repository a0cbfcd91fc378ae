#include "model/synth_released.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "format/layer_name.h"
#include "format/npy.h"
#include "format/safetensors_writer.h"
#include "io/atomic_directory.h"
#include "io/disk_room.h"
#include "io/file.h"
#include "model/synth_presets.h"

namespace ecphory {

namespace {

// Consecutive tensors of one layer, of no layer, or of one table.
using Shard = std::vector<const SynthTensor*>;

std::string ShardKey(const SynthTensor& tensor) {
  const auto layer = SplitLayerName(tensor.name);
  if (!layer) return "";
  const std::string key = std::to_string(layer->layer);
  return tensor.values.IsTable() ? "table " + key : key;
}

std::vector<Shard> SplitIntoShards(const std::vector<SynthTensor>& tensors) {
  std::vector<Shard> shards;
  std::string last;
  for (const SynthTensor& tensor : tensors) {
    const std::string key = ShardKey(tensor);
    if (shards.empty() || key != last) shards.emplace_back();
    shards.back().push_back(&tensor);
    last = key;
  }
  return shards;
}

std::string ShardName(size_t number, size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors",
                number + 1, count);
  return name;
}

Status WriteText(const std::string& path, const std::string& text) {
  ECPHORY_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::Create(path));
  ECPHORY_RETURN_IF_ERROR(file->Write(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file->Commit();
}

std::string IndexJson(const std::vector<Shard>& shards) {
  nlohmann::json map = nlohmann::json::object();
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SynthTensor* tensor : shards[i]) {
      map[tensor->name] = ShardName(i, shards.size());
      total += tensor->bytes();
    }
  }
  const nlohmann::json index{{"metadata", {{"total_size", total}}},
                             {"weight_map", std::move(map)}};
  return index.dump(1);
}

Status WriteSmallFiles(const ModelSource& source, const std::string& config,
                       const std::string& directory) {
  ECPHORY_RETURN_IF_ERROR(WriteText(directory + "/config.json", config));
  if (source.tokenizer) {
    ECPHORY_RETURN_IF_ERROR(
        WriteText(directory + "/tokenizer.json",
                  SynthTokenizerJson(source.tokenizer->data())));
  }
  if (source.token_map.empty()) return {};
  return WriteNpyI32(directory + "/token_map.npy", source.token_map,
                     {source.token_map.size()});
}

Result<std::vector<SafetensorsWriter>> PlanShards(
    const std::vector<Shard>& shards, SynthStream* stream) {
  std::vector<SafetensorsWriter> writers(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SynthTensor* tensor : shards[i]) {
      ECPHORY_RETURN_IF_ERROR(
          writers[i].AddTensor(tensor->name, tensor->dtype, tensor->shape,
                               stream->ProducerOf(*tensor)));
    }
  }
  return writers;
}

uint64_t TotalBytes(const std::vector<SafetensorsWriter>& writers) {
  uint64_t total = 0;
  for (const SafetensorsWriter& writer : writers) total += writer.FileBytes();
  return total;
}

Status WriteShards(const std::vector<SafetensorsWriter>& writers,
                   const std::string& folder,
                   const TensorStream::Progress& progress) {
  const uint64_t total = TotalBytes(writers);
  uint64_t before = 0;  // bytes of finished shards
  const auto report = [&](uint64_t done, uint64_t) {
    return !progress || progress(before + done, total);
  };
  for (size_t i = 0; i < writers.size(); ++i) {
    const std::string path = folder + "/" + ShardName(i, writers.size());
    ECPHORY_RETURN_IF_ERROR(writers[i].WriteTo(path, report));
    before += writers[i].FileBytes();
  }
  return {};
}

}  // namespace

Status WriteSynthDirectory(const ModelSource& source, const std::string& config,
                           const std::vector<SynthTensor>& tensors,
                           const std::string& directory,
                           const TensorStream::Progress& progress,
                           SynthStream* stream) {
  const std::vector<Shard> shards = SplitIntoShards(tensors);
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<SafetensorsWriter> writers,
                           PlanShards(shards, stream));
  ECPHORY_ASSIGN_OR_RETURN(const auto output,
                           AtomicDirectory::Create(directory));
  ECPHORY_RETURN_IF_ERROR(CheckDiskRoom(directory, TotalBytes(writers)));
  const auto write = [&]() -> Status {
    ECPHORY_RETURN_IF_ERROR(WriteShards(writers, output->path(), progress));
    ECPHORY_RETURN_IF_ERROR(WriteText(
        output->path() + "/model.safetensors.index.json", IndexJson(shards)));
    return WriteSmallFiles(source, config, output->path());
  };
  ECPHORY_RETURN_IF_ERROR(output->Named(write()));
  return output->Commit();
}

}  // namespace ecphory
