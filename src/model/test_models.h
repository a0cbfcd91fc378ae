// Models for the tests of this folder: golden directories, changed copies of
// them, and the released model's sizes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ecphory/config.h"

namespace ecphory::test {

// tests/golden/v41/<model>.
std::string GoldenDir(const std::string& model);
// The trainer's random model (tests/data/trainer), tokenizer included.
std::string TrainerDir();

std::string ReadFileOrDie(const std::string& path);
void WriteFileOrDie(const std::string& path, const std::string& bytes);

// A folder of its own under the system's temporary directory, removed with
// everything in it at the end of its life.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct TestTensor {
  std::string dtype;  // as safetensors spells it
  std::vector<uint64_t> shape;
  std::string bytes;
};

// A released-layout directory held in memory, to be changed and written to a
// folder of its own.
class ModelDir {
 public:
  // Starts as a copy of `directory`.
  explicit ModelDir(const std::string& directory = GoldenDir("A"));

  nlohmann::json config;
  nlohmann::json& text() { return config["text_config"]; }
  std::map<std::string, TestTensor> tensors;
  std::vector<int32_t> token_map;  // written when not empty

  // The tensor, which must be there.
  TestTensor& At(const std::string& name);
  // Writes everything as one shard; the folder's path.
  const std::string& Write();

 private:
  TempDir folder_;
};

// One shard's bytes.
std::string EncodeSafetensors(const std::map<std::string, TestTensor>& tensors);
// What the shards of a directory hold.
std::map<std::string, TestTensor> ReadSafetensorsDir(
    const std::string& directory);

// DeepSeek-V4.1-Flash as its config.json describes it.
ModelConfig ReleasedConfig();

}  // namespace ecphory::test
