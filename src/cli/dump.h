// Writes one layer's intermediates as .npy files (docs/dump.md).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ecphory/session.h"
#include "npy.h"

namespace ecphory::cli {

// DIR/<name>.npy for each tensor of the layer; the passes of a prompt cut into
// chunks are joined along the first dimension, the tokens. Nothing appears
// before Commit.
class DumpObserver : public TensorObserver {
 public:
  // Makes `directory` where it is missing (its parent must exist). One that was
  // made and has got no file goes with this object.
  static Result<std::unique_ptr<DumpObserver>> Create(uint32_t layer,
                                                      std::string directory);
  ~DumpObserver() override;

  bool Wants(uint32_t layer) const override { return layer == layer_; }
  void OnF32(uint32_t layer, const std::string& name,
             std::span<const float> values,
             const std::vector<uint64_t>& shape) override;
  void OnI32(uint32_t layer, const std::string& name,
             std::span<const int32_t> values,
             const std::vector<uint64_t>& shape) override;
  void OnU8(uint32_t layer, const std::string& name,
            std::span<const uint8_t> values,
            const std::vector<uint64_t>& shape) override;

  // Gives every file its name, or the first error of any of them.
  Status Commit();

 private:
  DumpObserver(uint32_t layer, std::string directory, bool made);
  void Append(const std::string& name, NpyType type, const void* data,
              const std::vector<uint64_t>& shape);
  Status TryAppend(const std::string& name, NpyType type, const void* data,
                   const std::vector<uint64_t>& shape);

  uint32_t layer_;
  std::string directory_;
  bool made_;  // the directory
  std::map<std::string, std::unique_ptr<NpyWriter>> files_;
  Status status_;
};

}  // namespace ecphory::cli
