// NumPy .npy files as the tool exchanges them: arrays of ids in, rows out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory::cli {

// The elements of a one-dimensional array of any integer or bool type, in
// little-endian or native single-byte order. Errors name `path`.
Result<std::vector<int64_t>> ReadNpyInts(const std::string& path);

enum class NpyType : uint8_t { kF32, kI32, kU8 };

// Writes an array whose number of rows is known only at the end. The data go
// to a temporary beside `path`, which Commit renames: whole file or none.
class NpyWriter {
 public:
  static Result<std::unique_ptr<NpyWriter>> Create(
      const std::string& path, NpyType type, std::vector<uint64_t> row_shape);
  ~NpyWriter();  // removes the temporary unless committed

  const std::vector<uint64_t>& row_shape() const { return row_shape_; }
  const std::string& path() const { return path_; }
  uint64_t rows() const { return rows_; }
  // `data` holds rows * row size elements.
  Status AppendRows(const void* data, uint64_t rows);
  // Lengthens the rows of a two-dimensional array to `width` elements: fp32
  // rows with -infinity, int32 rows with -1, bytes with 0.
  Status Widen(uint64_t width);
  Status Commit();

 private:
  NpyWriter(std::string path, NpyType type, std::vector<uint64_t> row_shape);
  uint64_t RowBytes() const;
  uint64_t RowOffset(uint64_t row) const;
  Status ReadRow(uint64_t row, std::vector<uint8_t>* bytes) const;
  std::string Header() const;
  Status Write(const void* data, size_t bytes, uint64_t offset);

  std::string path_;
  std::string temporary_;
  NpyType type_;
  std::vector<uint64_t> row_shape_;
  uint64_t rows_ = 0;
  int fd_ = -1;
};

}  // namespace ecphory::cli
