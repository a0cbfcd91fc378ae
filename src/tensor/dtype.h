// Element and block types of tensors in model files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ecphory/status.h"

namespace ecphory {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,  // 'fn' kind: no infinities, NaN is 0x7f and 0xff
  kF8E8M0,  // a power-of-two scale, 2^(byte - 127), 255 is NaN
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kU64,
  kBool,
  kQ8_0,   // ggml: f16 d, int8 q[32]
  kMXFP4,  // ggml: e8m0, then 16 bytes; low nibbles are elements 0..15
  kQ4_0,   // ggml: of Engram tables only, as is the next
  kQ4_1,
  kQ4_K,  // ggml, as are the next two: tensor/super_blocks.h
  kQ2_K,
  kIQ2_XXS,
};

struct DTypeInfo {
  const char* name;       // as the formats spell it, e.g. "BF16", "Q8_0"
  uint32_t block_values;  // values per block (1 for plain types)
  uint32_t block_bytes;   // bytes per block
};

const DTypeInfo& GetDTypeInfo(DType dtype);
inline const char* DTypeName(DType dtype) { return GetDTypeInfo(dtype).name; }

// Bytes of `values` values laid out in rows of whole blocks; kCorrupt when
// `values` is no multiple of the block, kOutOfRange on overflow.
Result<uint64_t> DTypeBytes(DType dtype, uint64_t values);

// From a ggml type id (GGUF) / a safetensors dtype string; kUnsupported names
// it.
Result<DType> DTypeFromGgml(uint32_t type_id);
Result<uint32_t> DTypeToGgml(DType dtype);
Result<DType> DTypeFromSafetensors(std::string_view name);

}  // namespace ecphory
