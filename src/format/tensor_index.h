// One directory of tensors, whatever kind of file they came from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ecphory/status.h"
#include "tensor/dtype.h"

namespace ecphory {

// "[8192, 4096]"
std::string ShapeString(std::span<const uint64_t> shape);

// Bytes of a dense tensor; `shape` outermost first, [] is one value. kCorrupt
// when the count overflows or a row (the last dimension) is no whole number of
// blocks.
Result<uint64_t> TensorBytes(DType dtype, std::span<const uint64_t> shape);

struct TensorInfo {
  std::string name;  // as in the file
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first (GGUF's order reversed)
  size_t file = 0;              // index into TensorIndex::files()
  uint64_t offset = 0;          // absolute, in that file
  uint64_t bytes = 0;

  uint64_t values() const;
  std::string ShapeString() const;
};

struct ModelFile {
  std::string path;
  uint64_t size = 0;
};

// Immutable after loading; thread-safe. Names are unique, every tensor lies
// inside its file and no two overlap (checked when it is built).
class TensorIndex {
 public:
  const std::vector<ModelFile>& files() const { return files_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Null when absent. O(1).
  const TensorInfo* Find(const std::string& name) const;

  size_t AddFile(ModelFile file);
  // Refuses duplicates, sizes that do not fit dtype and shape, and ranges
  // outside the file, naming tensor and file. `tensor.file` must exist.
  Status Add(TensorInfo tensor);
  // Refuses overlaps; call once after the last Add.
  Status Finish();

 private:
  std::vector<ModelFile> files_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace ecphory
