#include "tensor/dtype.h"

#include <string>

#include "base/check.h"
#include "base/checked_math.h"

namespace ecphory {

namespace {

constexpr int kNoGgmlId = -1;

struct DTypeEntry {
  DType dtype;
  DTypeInfo info;
  int ggml_id;       // kNoGgmlId when GGUF cannot hold the type
  bool safetensors;  // `info.name` is also its safetensors spelling
};

// In the order of the enumeration, so that a DType is its own index.
constexpr DTypeEntry kDTypes[] = {
    {DType::kF32, {"F32", 1, 4}, 0, true},
    {DType::kF16, {"F16", 1, 2}, 1, true},
    {DType::kBF16, {"BF16", 1, 2}, 30, true},
    {DType::kF64, {"F64", 1, 8}, 28, true},
    {DType::kF8E4M3, {"F8_E4M3", 1, 1}, kNoGgmlId, true},
    {DType::kF8E8M0, {"F8_E8M0", 1, 1}, kNoGgmlId, true},
    {DType::kI8, {"I8", 1, 1}, 24, true},
    {DType::kU8, {"U8", 1, 1}, kNoGgmlId, true},
    {DType::kI16, {"I16", 1, 2}, 25, true},
    {DType::kI32, {"I32", 1, 4}, 26, true},
    {DType::kI64, {"I64", 1, 8}, 27, true},
    {DType::kU64, {"U64", 1, 8}, kNoGgmlId, true},
    {DType::kBool, {"BOOL", 1, 1}, kNoGgmlId, true},
    {DType::kQ8_0, {"Q8_0", 32, 34}, 8, false},
    {DType::kMXFP4, {"MXFP4", 32, 17}, 39, false},
    {DType::kQ4_0, {"Q4_0", 32, 18}, 2, false},
    {DType::kQ4_1, {"Q4_1", 32, 20}, 3, false},
    {DType::kQ4_K, {"Q4_K", 256, 144}, 12, false},
    {DType::kQ2_K, {"Q2_K", 256, 84}, 10, false},
    {DType::kIQ2_XXS, {"IQ2_XXS", 256, 66}, 16, false},
};
constexpr size_t kDTypeCount = sizeof(kDTypes) / sizeof(kDTypes[0]);

constexpr bool EntriesFollowTheEnumeration() {
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return kDTypes[kDTypeCount - 1].dtype == DType::kIQ2_XXS;
}
static_assert(EntriesFollowTheEnumeration());

const DTypeEntry& Entry(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  ECPHORY_CHECK(index < kDTypeCount);
  return kDTypes[index];
}

// Names of ggml types that this engine cannot size, for its error message.
const char* UnsupportedGgmlName(uint32_t type_id) {
  switch (type_id) {
    case 6: return "Q5_0";
    case 7: return "Q5_1";
    case 9: return "Q8_1";
    case 11: return "Q3_K";
    case 13: return "Q5_K";
    case 14: return "Q6_K";
    case 15: return "Q8_K";
    case 17: return "IQ2_XS";
    case 18: return "IQ3_XXS";
    case 19: return "IQ1_S";
    case 20: return "IQ4_NL";
    case 21: return "IQ3_S";
    case 22: return "IQ2_S";
    case 23: return "IQ4_XS";
    case 29: return "IQ1_M";
    case 34: return "TQ1_0";
    case 35: return "TQ2_0";
    case 40: return "NVFP4";
    default: return nullptr;
  }
}

}  // namespace

const DTypeInfo& GetDTypeInfo(DType dtype) { return Entry(dtype).info; }

Result<uint64_t> DTypeBytes(DType dtype, uint64_t values) {
  const DTypeInfo& info = GetDTypeInfo(dtype);
  if (values % info.block_values != 0) {
    return Corrupt("%llu values of type %s are no whole number of blocks of %u",
                   static_cast<unsigned long long>(values), info.name,
                   info.block_values);
  }
  uint64_t bytes = 0;
  if (!CheckedMul(values / info.block_values, info.block_bytes, &bytes)) {
    return OutOfRange("%llu values of type %s take more than 2^64 bytes",
                      static_cast<unsigned long long>(values), info.name);
  }
  return bytes;
}

Result<DType> DTypeFromGgml(uint32_t type_id) {
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.ggml_id >= 0 && static_cast<uint32_t>(entry.ggml_id) == type_id) {
      return entry.dtype;
    }
  }
  if (const char* name = UnsupportedGgmlName(type_id)) {
    return Unsupported("tensor type %s (ggml id %u) is not supported", name,
                       type_id);
  }
  return Unsupported("ggml tensor type id %u is unknown", type_id);
}

Result<uint32_t> DTypeToGgml(DType dtype) {
  const DTypeEntry& entry = Entry(dtype);
  if (entry.ggml_id == kNoGgmlId) {
    return Unsupported("type %s has no ggml id: GGUF cannot hold it",
                       entry.info.name);
  }
  return static_cast<uint32_t>(entry.ggml_id);
}

Result<DType> DTypeFromSafetensors(std::string_view name) {
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.safetensors && name == entry.info.name) return entry.dtype;
  }
  // The name comes from a file: show a bounded part of it.
  return Unsupported("safetensors dtype \"%s\" is not supported",
                     std::string(name.substr(0, 32)).c_str());
}

}  // namespace ecphory
