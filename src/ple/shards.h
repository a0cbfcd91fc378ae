// The released directory's table: parts of rows in safetensors shards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "format/tensor_index.h"
#include "io/file.h"
#include "ple/layout.h"

namespace ecphory::ple {

// Thread-safe: constant after Open().
class ShardedTable {
 public:
  // Reads headers, the constants and the scale, none of the rows. `eos_id` is
  // the model's, which the shards do not have. Refuses, naming file and tensor:
  // no shards, those of several layers, a missing or repeated number, shapes
  // that differ in width, types that differ or are neither BF16 nor F8_E4M3,
  // F8_E4M3 without its one finite scale above 0 (or BF16 with one), constants
  // that CheckLayout() or CheckModelConfig() refuses, and rows that are not the
  // heads' sum rounded up to kRowPadding.
  static Result<ShardedTable> Open(const std::string& directory,
                                   int32_t eos_id);

  const Layout& layout() const { return layout_; }
  uint64_t rows() const { return layout_.padded_rows(); }
  DType dtype() const { return dtype_; }  // kBF16 or kF8E4M3
  float scale() const { return scale_; }  // 1 for kBF16
  // Every safetensors file of the directory.
  const std::vector<std::string>& files() const { return files_; }

  // Rows [first, first + count) as `target` holds them, one behind the other:
  // BF16 or Q8_0 from BF16, Q8_0 from F8_E4M3 (code * scale). Errors name file,
  // tensor and row: a read that falls short, a NaN code (0x7f, 0xff), a value
  // that is not finite or that Q8_0 cannot hold.
  Status EncodeRows(uint64_t first, uint64_t count, DType target,
                    std::span<uint8_t> out) const;
  // Bytes of a row in `target`; kUnsupported when EncodeRows cannot make it.
  Result<uint64_t> RowBytes(DType target) const;

 private:
  struct Part {
    std::shared_ptr<RandomAccessFile> file;
    std::string name;
    uint64_t offset = 0;     // of its first row in `file`
    uint64_t first_row = 0;  // of the table
    uint64_t rows = 0;
  };
  friend class ShardReader;

  const Part& PartOf(uint64_t row) const;
  Status EncodeRow(const Part& part, uint64_t row, const uint8_t* in,
                   DType target, uint8_t* out) const;

  Layout layout_;
  DType dtype_ = DType::kBF16;
  float scale_ = 1;
  std::vector<Part> parts_;
  std::vector<std::string> files_;
};

// Whether `path` is a directory of safetensors with tensors of such a table:
// ShardedTable::Open then opens it, or says what is wrong with it.
Result<bool> HasShards(const std::string& path);

}  // namespace ecphory::ple
