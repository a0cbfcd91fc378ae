// Models for the tests of this folder: golden directories, changed copies of
// them, and the released model's sizes.
#pragma once

#include <string>

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

// DeepSeek-V4.1-Flash as its config.json describes it.
ModelConfig ReleasedConfig();

}  // namespace ecphory::test
