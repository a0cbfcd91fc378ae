// GGUF metadata under one prefix as a source of named values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ecphory/status.h"
#include "format/field_reader.h"
#include "format/gguf.h"

namespace ecphory {

// Key "k" is `prefix` + "k" in the file, which must outlive this.
class GgufKeySource : public KeySource {
 public:
  GgufKeySource(const GgufFile& file, std::string prefix)
      : file_(file), prefix_(std::move(prefix)) {}
  bool Has(const std::string& key) const override {
    return file_.Has(prefix_ + key);
  }
  std::string Spelling(const std::string& key) const override {
    return prefix_ + key;
  }
  Result<uint64_t> Uint(const std::string& key) const override {
    return file_.GetUint(prefix_ + key);
  }
  Result<int64_t> Int(const std::string& key) const override {
    return file_.GetInt(prefix_ + key);
  }
  Result<double> Float(const std::string& key) const override {
    return file_.GetFloat(prefix_ + key);
  }
  Result<bool> Bool(const std::string& key) const override {
    return file_.GetBool(prefix_ + key);
  }
  Result<std::string> String(const std::string& key) const override {
    return file_.GetString(prefix_ + key);
  }
  Result<std::vector<uint64_t>> UintArray(
      const std::string& key) const override {
    return file_.GetUintArray(prefix_ + key);
  }

 private:
  const GgufFile& file_;
  const std::string prefix_;
};

}  // namespace ecphory
