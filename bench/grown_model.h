// A model to measure reading on: golden model A with more layers, a larger
// vocabulary and Engram tables of the released shape (24 columns of 256 values)
// and any size. Its weights are noise; its work per token is real.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engram/layout.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "io/file.h"

namespace ecphory::bench {

struct GrownShape {
  uint64_t column_rows = 100'000;  // a table takes 24 * 264 times as many bytes
  uint32_t extra_layers = 0;
  uint32_t vocab = 0;
  uint32_t compressed_vocab = 0;
};

class GrownModel {
 public:
  // `golden`: tests/golden/v41/A.
  static Result<GrownModel> Load(const std::string& golden) {
    GrownModel model;
    ECPHORY_ASSIGN_OR_RETURN(
        const std::string config,
        ReadWholeFile(golden + "/config.json", uint64_t{1} << 20));
    model.config_ = nlohmann::json::parse(config);
    ECPHORY_ASSIGN_OR_RETURN(const TensorIndex index,
                             OpenSafetensorsDirectory(golden));
    for (const TensorInfo& info : index.tensors()) {
      ECPHORY_ASSIGN_OR_RETURN(const auto file,
                               OpenFile(index.files()[info.file].path));
      Tensor& tensor = model.tensors_[info.name];
      tensor = {DTypeName(info.dtype), info.shape, std::string(info.bytes, 0)};
      ECPHORY_RETURN_IF_ERROR(
          file->ReadExact(info.offset, Bytes(tensor.bytes)));
    }
    return model;
  }

  // Writes the directory `path`, which exists.
  Status Write(const GrownShape& shape, std::span<const int32_t> token_map,
               const std::string& path) {
    GrowVocabulary(shape);
    GrowLayers(shape.extra_layers);
    ECPHORY_RETURN_IF_ERROR(GrowTables(shape));
    ECPHORY_RETURN_IF_ERROR(
        WriteNpyI32(path + "/token_map.npy", token_map, {token_map.size()}));
    ECPHORY_ASSIGN_OR_RETURN(const auto config,
                             AtomicFileWriter::Create(path + "/config.json"));
    std::string text = config_.dump(1);
    ECPHORY_RETURN_IF_ERROR(config->Write(Bytes(text)));
    ECPHORY_RETURN_IF_ERROR(config->Commit());
    return WriteTensors(path + "/model.safetensors");
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 20;
  static constexpr uint32_t kWidth = 256;

  struct Tensor {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::string bytes;      // or, where it is empty:
    uint64_t made = 0;      // bytes that are made while they are written,
    int low = 0, mask = 0;  // each `low` plus random bits of `mask`
    uint64_t size() const { return bytes.empty() ? made : bytes.size(); }
  };

  static std::span<uint8_t> Bytes(std::string& text) {
    return {reinterpret_cast<uint8_t*>(text.data()), text.size()};
  }

  nlohmann::json& text() { return config_["text_config"]; }

  // The rows of the old vocabulary, again and again.
  void GrowVocabulary(const GrownShape& shape) {
    text()["vocab_size"] = shape.vocab;
    text()["max_position_embeddings"] = 1 << 17;
    text()["engram_compressed_vocab_size"] = shape.compressed_vocab;
    for (const char* name : {"embed.weight", "head.weight"}) {
      Tensor& tensor = tensors_[name];
      const uint64_t bytes = tensor.size() / tensor.shape[0] * shape.vocab;
      tensor.shape[0] = shape.vocab;
      while (tensor.bytes.size() < bytes) {
        tensor.bytes += tensor.bytes.substr(0, bytes - tensor.bytes.size());
      }
    }
  }

  // Copies of the last layer.
  void GrowLayers(uint32_t extra) {
    const uint32_t old = text()["num_hidden_layers"];
    const std::string last = "layers." + std::to_string(old - 1) + ".";
    std::map<std::string, Tensor> layer;
    for (const auto& [name, tensor] : tensors_) {
      if (name.starts_with(last)) layer[name.substr(last.size())] = tensor;
    }
    for (uint32_t i = old; i < old + extra; ++i) {
      text()["compress_ratios"].push_back(text()["compress_ratios"].back());
      for (const auto& [name, tensor] : layer) {
        if (name.find("indexer") != name.npos) continue;  // shared
        tensors_["layers." + std::to_string(i) + "." + name] = tensor;
      }
    }
    text()["num_hidden_layers"] = old + extra;
  }

  Status GrowTables(const GrownShape& shape) {
    text()["engram_n_heads"] = 8;
    text()["engram_head_dim"] = kWidth;
    text()["engram_vocab_size"] = shape.column_rows;
    ECPHORY_ASSIGN_OR_RETURN(
        const engram::Layout layout,
        engram::DeriveLayout(
            {.layer_ids = text()["engram_layer_ids"],
             .max_ngram = text()["engram_max_ngram_size"],
             .heads = 8,
             .vocab_size = shape.column_rows,
             .compressed_vocab_size = shape.compressed_vocab}));
    text()["engram_num_embeddings"] = nlohmann::json::array();
    const uint64_t values = uint64_t{layout.columns()} * kWidth;
    for (const engram::LayerLayout& layer : layout.layers) {
      text()["engram_num_embeddings"].push_back(layer.rows);
      const std::string prefix =
          "layers." + std::to_string(layer.layer_id) + ".engram.";
      Make(prefix + "embed.weight", {layer.rows, kWidth}, 0, 0xbf);
      Make(prefix + "embed.scale", {layer.rows, kWidth / 32}, 112, 0x07);
      const uint64_t out = tensors_[prefix + "wkv.weight"].shape[0];
      Make(prefix + "wkv.weight", {out, values}, 0, 0xbf);
      Make(prefix + "wkv.scale", {out / 32, values / 32}, 112, 0x07);
    }
    return {};
  }

  void Make(const std::string& name, std::vector<uint64_t> shape, int low,
            int mask) {
    Tensor& tensor = tensors_[name];
    tensor.bytes.clear();
    tensor.made = shape[0] * shape[1];
    tensor.shape = std::move(shape);
    tensor.low = low;
    tensor.mask = mask;
  }

  Status WriteTensors(const std::string& path) {
    nlohmann::json header = nlohmann::json::object();
    uint64_t end = 0;
    for (const auto& [name, tensor] : tensors_) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {end, end + tensor.size()}}};
      end += tensor.size();
    }
    std::string text = header.dump();
    const uint64_t length = text.size();
    std::string prefix(sizeof(length), 0);
    std::memcpy(prefix.data(), &length, sizeof(length));
    ECPHORY_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::Create(path));
    ECPHORY_RETURN_IF_ERROR(file->Write(Bytes(prefix)));
    ECPHORY_RETURN_IF_ERROR(file->Write(Bytes(text)));
    for (auto& [name, tensor] : tensors_) {
      ECPHORY_RETURN_IF_ERROR(WriteTensor(&tensor, file.get()));
    }
    return file->Commit();
  }

  Status WriteTensor(Tensor* tensor, AtomicFileWriter* file) {
    if (!tensor->bytes.empty()) return file->Write(Bytes(tensor->bytes));
    std::vector<uint8_t> piece;
    for (uint64_t done = 0; done < tensor->made; done += piece.size()) {
      piece.resize(std::min<uint64_t>(kPiece, tensor->made - done));
      for (uint8_t& byte : piece) {
        byte = static_cast<uint8_t>(
            tensor->low +
            static_cast<int>(rng_() >> 32 & unsigned(tensor->mask)));
      }
      ECPHORY_RETURN_IF_ERROR(file->Write(piece));
    }
    return {};
  }

  nlohmann::json config_;
  std::map<std::string, Tensor> tensors_;
  std::mt19937_64 rng_{1};
};

}  // namespace ecphory::bench
