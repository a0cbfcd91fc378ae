// What must hold for every tensor directory that a reader accepted.
#pragma once

#include <cstdlib>

#include "format/tensor_index.h"

namespace ecphory {

inline void CheckIndex(const TensorIndex& index) {
  for (const TensorInfo& tensor : index.tensors()) {
    const auto bytes = TensorBytes(tensor.dtype, tensor.shape);
    const uint64_t size = index.files().at(tensor.file).size;
    if (!bytes.ok() || *bytes != tensor.bytes) std::abort();
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
      std::abort();
    }
    if (index.Find(tensor.name) != &tensor) std::abort();
  }
}

}  // namespace ecphory
