// Weights of one format, more than any cache holds, handed out in turn.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/status.h"
#include "measure/buffer.h"
#include "tensor/matrix.h"

namespace ecphory::measure {

// Every format that this build has.
std::vector<WeightFormat> WeightFormats();
// Its name as part of a figure's name: "FP8_32x32".
std::string FigureName(WeightFormat format);

class WeightPool {
 public:
  // Random codes of ordinary magnitudes over `bytes` of memory.
  static Result<WeightPool> Create(WeightFormat format, size_t bytes,
                                   BenchPages pages, ThreadPool& pool);

  WeightFormat format() const { return format_; }
  // The next matrix of that shape; over the end it begins again. `cols` is a
  // multiple of 256, and the matrix fits the pool.
  Matrix Next(size_t rows, size_t cols);

 private:
  WeightFormat format_ = WeightFormat::kF32;
  Buffer data_;
  Buffer scales_;
  size_t next_ = 0;
  size_t next_scale_ = 0;
};

}  // namespace ecphory::measure
