// NumPy .npy files, versions 1 and 2, C order, little-endian integers, floats
// and bools: enough to exchange test data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory {

struct NpyArray {
  std::string dtype;  // "<f4", "<i4", "<i8", "|u1", ...
  std::vector<uint64_t> shape;
  std::vector<uint8_t> bytes;

  uint64_t count() const;
  // kInvalidArgument when the dtype is of another kind or a value does not fit.
  Result<std::vector<float>> AsFloat() const;    // <f4, or <f8 rounded
  Result<std::vector<int64_t>> AsInt64() const;  // any integer or bool type
};

// Refuses files larger than `max_bytes`.
Result<NpyArray> ReadNpy(const std::string& path, uint64_t max_bytes);
// The same from memory; `where` stands for the path in errors.
Result<NpyArray> ParseNpy(std::span<const uint8_t> bytes,
                          const std::string& where);

// Whole file or nothing (temporary and rename). `shape` must hold exactly the
// values given.
Status WriteNpyF32(const std::string& path, std::span<const float> values,
                   const std::vector<uint64_t>& shape);
Status WriteNpyI32(const std::string& path, std::span<const int32_t> values,
                   const std::vector<uint64_t>& shape);
Status WriteNpyU8(const std::string& path, std::span<const uint8_t> values,
                  const std::vector<uint64_t>& shape);

}  // namespace ecphory
