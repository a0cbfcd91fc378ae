// How a tensor of the configuration is stored in a source: found, and its dtype
// and shape checked against what the engine can read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "format/tensor_index.h"
#include "model/source.h"
#include "model/tensor_slots.h"
#include "tensor/matrix.h"

namespace ecphory {

// A matrix, or several of one shape behind each other.
struct StoredMatrix {
  WeightFormat format = WeightFormat::kF32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  const TensorInfo* data = nullptr;
  const TensorInfo* scales = nullptr;  // kFp8Tile32 and kFp4Row32
  uint64_t data_offset = 0;            // of this matrix inside `data`
};

// "path: tensor 'name'".
std::string TensorLabel(const ModelSource& source, const TensorInfo& tensor);

// The tensor, or kNotFound naming it as this source would spell it.
Result<const TensorInfo*> RequireTensor(const ModelSource& source,
                                        const std::string& released_name);

// One matrix for most slots, one per expert for kExperts: separate tensors or
// parts of one stacked [experts, rows, cols].
Result<std::vector<StoredMatrix>> FindMatrices(const ModelSource& source,
                                               const TensorSlot& slot);

// The tensor of a kVector slot (F32, F16 or BF16); null when it is optional
// and absent.
Result<const TensorInfo*> FindVector(const ModelSource& source,
                                     const TensorSlot& slot);

// `count` values of F32, F16 or BF16.
void CopyToFloat(DType dtype, const uint8_t* in, size_t count, float* out);

}  // namespace ecphory
