// NumPy .npy files, version 1.0/2.0, C order: enough to exchange test data.
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
  // Widening reads; kInvalidArgument when the dtype is of another kind.
  Result<std::vector<float>> AsFloat() const;
  Result<std::vector<int64_t>> AsInt64() const;  // any integer or bool type
};

Result<NpyArray> ReadNpy(const std::string& path, uint64_t max_bytes);
Result<NpyArray> ParseNpy(std::span<const uint8_t> bytes,
                          const std::string& where);
// Whole file or nothing (temporary and rename).
Status WriteNpyF32(const std::string& path, std::span<const float> values,
                   const std::vector<uint64_t>& shape);
Status WriteNpyI32(const std::string& path, std::span<const int32_t> values,
                   const std::vector<uint64_t>& shape);
Status WriteNpyU8(const std::string& path, std::span<const uint8_t> values,
                  const std::vector<uint64_t>& shape);

}  // namespace ecphory
