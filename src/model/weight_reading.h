// Weights read into memory, each row by the thread that will multiply with it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/status.h"
#include "model/source.h"
#include "model/weight_mapping.h"
#include "model/weights.h"

namespace ecphory {

// Consecutive bytes of a tensor that operators split by rows.
struct TensorPiece {
  const TensorInfo* tensor = nullptr;
  uint64_t offset = 0;  // in the tensor
  uint64_t bytes = 0;   // of all rows
  uint64_t rows = 1;
};

// Reads every piece to where `memory` (reserved) has its tensor. Threads take
// contiguous rows, as ParallelFor hands them to operators, so that pages come
// from the memory node of the thread that reads them again in every step.
// `progress` may be empty; when it returns false the result is kCancelled.
// Errors name tensor and file.
Status ReadTensors(const ModelSource& source, const FileOpener& open,
                   const std::vector<TensorPiece>& pieces,
                   const WeightMapping& memory,
                   const std::function<bool(uint64_t, uint64_t)>& progress,
                   ThreadPool& pool);

}  // namespace ecphory
