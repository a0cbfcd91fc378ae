// Models for the tests of this folder: golden directories, changed copies of
// them, and the released model's sizes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "format/gguf.h"
#include "io/test_directory.h"
#include "model/testing.h"

namespace ecphory::testing {

// The trainer's random model (tests/data/trainer), tokenizer included.
std::string TrainerDir();

std::string ReadFileOrDie(const std::string& path);
void WriteFileOrDie(const std::string& path, const std::string& bytes);

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
  TestDirectory folder_;
};

// One shard's bytes.
std::string EncodeSafetensors(const std::map<std::string, TestTensor>& tensors);
// What the shards of a directory hold.
std::map<std::string, TestTensor> ReadSafetensorsDir(
    const std::string& directory);

// The header of a file that must parse.
GgufFile ParseGgufOrDie(const std::string& path);

// Fails the test unless `text` has `part` in it.
void ExpectHas(const std::string& text, const std::string& part);

// DeepSeek-V4.1-Flash as its config.json describes it.
ModelConfig ReleasedConfig();

}  // namespace ecphory::testing
