// The mapped part of a model's files: everything but the Engram tables.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/anonymous_memory.h"
#include "ecphory/status.h"
#include "io/file.h"
#include "model/source.h"

namespace ecphory {

// A stretch of one file.
struct FileRange {
  size_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The least ranges that hold every tensor of `used` and no byte of `kept_out`:
// one per stretch between two tables.
std::vector<FileRange> CoverTensors(std::vector<const TensorInfo*> used,
                                    std::vector<const TensorInfo*> kept_out);

// Where the tensors' bytes are in memory.
class WeightMapping {
 public:
  static Result<WeightMapping> Map(const ModelSource& source,
                                   const std::vector<const TensorInfo*>& used);
  // Memory as large, still empty, in large pages: Write() says where a tensor
  // belongs. kResourceExhausted names the bytes.
  static Result<WeightMapping> Reserve(
      const ModelSource& source, const std::vector<const TensorInfo*>& used);
  uint8_t* Write(const TensorInfo& tensor) const;

  // First byte of a tensor that was in `used`.
  const uint8_t* Bytes(const TensorInfo& tensor) const;
  uint64_t bytes() const;
  std::vector<std::shared_ptr<FileMapping>> mappings() const {
    return mappings_;
  }
  std::vector<std::shared_ptr<AnonymousMemory>> copies() const {
    return copies_;
  }

 private:
  // The range that holds a tensor.
  size_t RangeOf(const TensorInfo& tensor) const;

  std::vector<FileRange> ranges_;
  // Of ranges_, one of them.
  std::vector<std::shared_ptr<FileMapping>> mappings_;
  std::vector<std::shared_ptr<AnonymousMemory>> copies_;
};

}  // namespace ecphory
