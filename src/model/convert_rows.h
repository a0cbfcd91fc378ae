// Reading stored matrices row by row and encoding them for GGUF, in buffers of
// bounded size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ecphory/status.h"
#include "io/file.h"
#include "model/engram_source.h"
#include "model/source.h"
#include "model/stored_tensor.h"
#include "tensor/dtype.h"

namespace ecphory {

using ByteSink = std::function<Status(std::span<const uint8_t>)>;

// The files of a source, opened once for plain reads. Must outlive the source's
// conversion; the source must outlive it.
class SourceFiles {
 public:
  static Result<SourceFiles> Open(const ModelSource& source);

  const ModelSource& source() const { return *source_; }
  // `size` bytes of a tensor from `offset` on.
  Status Read(const TensorInfo& tensor, uint64_t offset,
              std::span<uint8_t> out) const;

 private:
  const ModelSource* source_ = nullptr;
  std::vector<std::shared_ptr<RandomAccessFile>> files_;
};

// Calls visit with bands of consecutive rows of the matrix, as stored; the view
// is valid during the call only.
using BandVisitor = std::function<Status(const Matrix& band, uint64_t first)>;
Status ForEachBand(const SourceFiles& files, const StoredMatrix& matrix,
                   const BandVisitor& visit);

// Writes the matrix as `dtype` (F32, F16, BF16, Q8_0, or MXFP4 from packed
// FP4). Values that are not finite, before or after, are kCorrupt naming tensor
// and row.
Status EncodeMatrix(const SourceFiles& files, const StoredMatrix& matrix,
                    DType dtype, const ByteSink& sink);

// Whether every value is finite in fp16 / exactly an fp16.
struct F16Fit {
  bool finite = true;
  bool exact = true;
};
Result<F16Fit> CheckF16(const SourceFiles& files, const StoredMatrix& matrix);

// Writes rows of codes and scales together, byte for byte.
Status InterleaveTable(const SourceFiles& files, const StoredTable& table,
                       const ByteSink& sink);

// One row of `cols` values in blocks of 32: d = amax / 127 as fp16, codes
// round(x / d). False when a value is not finite or d overflows.
[[nodiscard]] bool EncodeQ8Weights(const float* x, size_t cols, uint8_t* out);

// One row of packed FP4 (low nibble = even column) with its scales as MXFP4
// blocks (low nibbles = first half of the block): the same values.
void RepackMxfp4Row(const uint8_t* codes, const uint8_t* scales, size_t cols,
                    uint8_t* out);

}  // namespace ecphory
