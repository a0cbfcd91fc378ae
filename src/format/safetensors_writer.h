// Writing safetensors: one shard, streamed.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "ecphory/status.h"
#include "format/tensor_stream.h"
#include "tensor/dtype.h"

namespace ecphory {

// Plans a shard first, so that its size is known before a byte is written; then
// streams the tensors' data in order.
class SafetensorsWriter {
 public:
  // `shape` outermost first. Refuses types that safetensors cannot hold, and a
  // name used before.
  Status AddTensor(const std::string& name, DType dtype,
                   std::vector<uint64_t> shape,
                   TensorStream::Producer producer);

  uint64_t FileBytes() const;
  // Whole file or nothing. `progress` counts this shard's bytes alone.
  Status WriteTo(const std::string& path,
                 const TensorStream::Progress& progress) const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;
    uint64_t bytes;
    TensorStream::Producer producer;
  };
  // Length and JSON, padded with spaces so that the data begin on a page.
  std::string EncodeHeader() const;

  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> names_;
  uint64_t data_bytes_ = 0;
};

}  // namespace ecphory
