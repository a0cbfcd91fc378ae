// Definitions behind test_models.h; compiled into this folder's test program.
#include "model/test_models.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "format/npy.h"
#include "format/safetensors.h"

namespace ecphory::testing {

namespace {

[[noreturn]] void Die(const std::string& what, const std::string& path) {
  std::fprintf(stderr, "%s: %s\n", path.c_str(), what.c_str());
  std::abort();
}

}  // namespace

std::string TrainerDir() {
  return std::string(ECPHORY_TEST_DATA) + "/data/trainer";
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) Die("cannot open", path);
  std::string bytes(static_cast<size_t>(in.tellg()), '\0');
  in.seekg(0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in) Die("cannot read", path);
  return bytes;
}

void WriteFileOrDie(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) Die("cannot write", path);
}

std::string EncodeSafetensors(
    const std::map<std::string, TestTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  uint64_t length = text.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof(length));
  return out + text + data;
}

std::map<std::string, TestTensor> ReadSafetensorsDir(
    const std::string& directory) {
  const Result<TensorIndex> index = OpenSafetensorsDirectory(directory);
  if (!index.ok()) Die(index.status().ToString(), directory);
  std::vector<std::string> files;
  for (const ModelFile& file : index->files()) {
    files.push_back(ReadFileOrDie(file.path));
  }
  std::map<std::string, TestTensor> tensors;
  for (const TensorInfo& info : index->tensors()) {
    tensors[info.name] = {DTypeName(info.dtype), info.shape,
                          files[info.file].substr(info.offset, info.bytes)};
  }
  return tensors;
}

ModelDir::ModelDir(const std::string& directory)
    : config(nlohmann::json::parse(ReadFileOrDie(directory + "/config.json"))),
      tensors(ReadSafetensorsDir(directory)) {
  const std::string map_path = directory + "/token_map.npy";
  if (!std::filesystem::exists(map_path)) return;
  const Result<NpyArray> map = ReadNpy(map_path, 1 << 20);
  if (!map.ok()) Die(map.status().ToString(), map_path);
  const Result<std::vector<int64_t>> ids = map->AsInt64();
  if (!ids.ok()) Die(ids.status().ToString(), map_path);
  token_map.assign(ids->begin(), ids->end());
}

TestTensor& ModelDir::At(const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) Die("no such tensor", name);
  return found->second;
}

const std::string& ModelDir::Write() {
  WriteFileOrDie(folder_ / "config.json", config.dump());
  WriteFileOrDie(folder_ / "model.safetensors", EncodeSafetensors(tensors));
  if (!token_map.empty()) {
    const Status written =
        WriteNpyI32(folder_ / "token_map.npy", token_map, {token_map.size()});
    if (!written.ok()) Die(written.ToString(), folder_.path());
  }
  return folder_.path();
}

GgufFile ParseGgufOrDie(const std::string& path) {
  const auto file = OpenFile(path);
  if (!file.ok()) Die(file.status().ToString(), path);
  Result<GgufFile> gguf = GgufFile::Parse(*file);
  if (!gguf.ok()) Die(gguf.status().ToString(), path);
  return std::move(gguf).value();
}

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos)
      << "'" << text << "' lacks '" << part << "'";
}

ModelConfig ReleasedConfig() {
  ModelConfig c;
  c.architecture = "deepseek41";
  c.vocab_size = 129280;
  c.hidden_size = 5120;
  c.n_layers = 40;
  c.n_heads = 64;
  c.head_dim = 512;
  c.rope_dim = 64;
  c.q_lora_rank = 1280;
  c.o_groups = 8;
  c.o_lora_rank = 1024;
  c.sliding_window = 128;
  c.max_positions = 1048576;
  c.rms_norm_eps = 1e-20f;
  c.rope_theta = 10000;
  c.compress_rope_theta = 160000;
  c.yarn = {.enabled = true, .factor = 16, .original_max_positions = 65536};
  c.compress_ratios.assign(2, 0);
  c.compress_ratios.insert(c.compress_ratios.end(), 18, 2);
  c.compress_ratios.insert(c.compress_ratios.end(), 20, 1);
  c.kv_source_layer_ids = {2, 8, 14, 20};
  c.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  c.index_n_heads = 32;
  c.index_head_dim = 128;
  c.index_topk = 512;
  c.candidate_source_layer_id = 20;
  c.candidate_topk_blocks = 2048;
  c.candidate_block_size = 8;
  c.n_experts = 384;
  c.n_experts_per_token = 6;
  c.n_shared_experts = 1;
  c.expert_dim = 2304;
  c.routed_scaling_factor = 1.5f;
  c.swiglu_limit = 10;
  c.hc_mult = 4;
  c.hc_sinkhorn_iters = 20;
  c.hc_eps = 1e-6f;
  c.engram.layer_ids = {1, 14};
  c.engram.rows = {384006168, 384016682};
  c.engram.max_ngram = 4;
  c.engram.heads = 8;
  c.engram.head_dim = 256;
  c.engram.vocab_size = 16000000;
  c.engram.compressed_vocab_size = 99092;
  c.engram.pad_token_id = 2;
  c.bos_token_id = 0;
  c.eos_token_id = 1;
  c.image_token_id = 129264;
  return c;
}

}  // namespace ecphory::testing
