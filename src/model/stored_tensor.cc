#include "model/stored_tensor.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/quote.h"
#include "model/names.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

std::string FileSpelling(const ModelSource& source,
                         const std::string& released_name) {
  const bool gguf = source.format == "gguf";
  return gguf ? GgufTensorName(released_name) : released_name;
}

Status WrongTensor(const ModelSource& source, const TensorInfo& tensor,
                   const std::string& expected) {
  return Corrupt("%s: found %s %s, expected %s",
                 TensorLabel(source, tensor).c_str(), DTypeName(tensor.dtype),
                 tensor.ShapeString().c_str(), expected.c_str());
}

// What a matrix may be made of, in either kind of file.
constexpr char kGgufTypes[] =
    "F32, F16, BF16, Q8_0, MXFP4, Q4_K, Q2_K or IQ2_XXS";
constexpr char kReleasedTypes[] = "F32, F16, BF16, F8_E4M3 or I8 (packed FP4)";

// Types that exist but that no kernel here reads.
Status UnreadableType(const ModelSource& source, const TensorInfo& tensor,
                      const char* readable) {
  return Unsupported("%s: found type %s, expected %s",
                     TensorLabel(source, tensor).c_str(),
                     DTypeName(tensor.dtype), readable);
}

// Formats whose scales, if any, lie inside the rows.
std::optional<WeightFormat> SelfContainedFormat(DType dtype) {
  switch (dtype) {
    case DType::kF32: return WeightFormat::kF32;
    case DType::kF16: return WeightFormat::kF16;
    case DType::kBF16: return WeightFormat::kBF16;
    case DType::kQ8_0: return WeightFormat::kQ8_0;
    case DType::kMXFP4: return WeightFormat::kMXFP4;
    case DType::kQ4_K: return WeightFormat::kQ4_K;
    case DType::kQ2_K: return WeightFormat::kQ2_K;
    case DType::kIQ2_XXS: return WeightFormat::kIQ2_XXS;
    default: return std::nullopt;
  }
}

std::optional<WeightFormat> ScaledFormat(DType dtype) {
  if (dtype == DType::kF8E4M3) return WeightFormat::kFp8Tile32;
  if (dtype == DType::kI8 || dtype == DType::kU8) {
    return WeightFormat::kFp4Row32;
  }
  return std::nullopt;
}

Status CheckShape(const ModelSource& source, const TensorInfo& tensor,
                  const std::vector<uint64_t>& shape) {
  if (tensor.shape == shape) return {};
  return WrongTensor(source, tensor, "shape " + ShapeString(shape));
}

// e4m3 codes with a scale per 32x32 tile, or e2m1 pairs with a scale per row
// and 32 columns.
Result<StoredMatrix> FindScaled(const ModelSource& source,
                                const std::string& name, StoredMatrix matrix) {
  const uint64_t rows = matrix.rows, cols = matrix.cols;
  const bool tiles = matrix.format == WeightFormat::kFp8Tile32;
  if (!tiles && cols % 32 != 0) {
    return WrongTensor(source, *matrix.data,
                       "another type: rows of " + std::to_string(cols) +
                           " values are no whole FP4 blocks of 32");
  }
  ECPHORY_RETURN_IF_ERROR(
      CheckShape(source, *matrix.data, {rows, tiles ? cols : cols / 2}));
  ECPHORY_ASSIGN_OR_RETURN(matrix.scales,
                           RequireTensor(source, name + ".scale"));
  const uint64_t scale_rows = tiles ? (rows + 31) / 32 : rows;
  const std::vector<uint64_t> shape = {scale_rows, (cols + 31) / 32};
  if (matrix.scales->dtype != DType::kF8E8M0) {
    return WrongTensor(source, *matrix.scales, "F8_E8M0 " + ShapeString(shape));
  }
  ECPHORY_RETURN_IF_ERROR(CheckShape(source, *matrix.scales, shape));
  return matrix;
}

Result<StoredMatrix> FindMatrix(const ModelSource& source,
                                const std::string& name, uint64_t rows,
                                uint64_t cols) {
  StoredMatrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  ECPHORY_ASSIGN_OR_RETURN(matrix.data, RequireTensor(source, name));
  if (const auto format = SelfContainedFormat(matrix.data->dtype)) {
    matrix.format = *format;
    ECPHORY_RETURN_IF_ERROR(CheckShape(source, *matrix.data, {rows, cols}));
    return matrix;
  }
  // Scales in a tensor of their own: GGUF has no such pairs.
  const bool gguf = source.format == "gguf";
  const auto scaled = ScaledFormat(matrix.data->dtype);
  if (scaled && !gguf) {
    matrix.format = *scaled;
    return FindScaled(source, name, matrix);
  }
  return UnreadableType(source, *matrix.data,
                        gguf ? kGgufTypes : kReleasedTypes);
}

Result<std::vector<StoredMatrix>> SplitStack(const ModelSource& source,
                                             const TensorInfo& stack,
                                             const TensorSlot& slot) {
  const auto format = SelfContainedFormat(stack.dtype);
  if (!format) {
    return UnreadableType(source, stack, kGgufTypes);
  }
  ECPHORY_RETURN_IF_ERROR(CheckShape(source, stack, slot.shape));
  std::vector<StoredMatrix> experts(slot.shape[0]);
  const uint64_t expert_bytes = stack.bytes / experts.size();
  for (size_t e = 0; e < experts.size(); ++e) {
    experts[e] = {.format = *format,
                  .rows = slot.shape[1],
                  .cols = slot.shape[2],
                  .data = &stack,
                  .data_offset = e * expert_bytes};
  }
  return experts;
}

Result<std::vector<StoredMatrix>> FindExperts(const ModelSource& source,
                                              const TensorSlot& slot) {
  const TensorInfo* stack = source.Find(slot.name);
  if (stack != nullptr) return SplitStack(source, *stack, slot);
  if (source.format == "gguf") {
    return RequireTensor(source, slot.name).status();
  }
  std::vector<StoredMatrix> experts;
  for (size_t e = 0; e < slot.shape[0]; ++e) {
    ECPHORY_ASSIGN_OR_RETURN(
        StoredMatrix expert,
        FindMatrix(source, slot.ExpertName(e), slot.shape[1], slot.shape[2]));
    experts.push_back(std::move(expert));
  }
  return experts;
}

}  // namespace

std::string TensorLabel(const ModelSource& source, const TensorInfo& tensor) {
  return source.index.files()[tensor.file].path + ": tensor " +
         Quoted(tensor.name);
}

Result<const TensorInfo*> RequireTensor(const ModelSource& source,
                                        const std::string& released_name) {
  const TensorInfo* found = source.Find(released_name);
  if (found != nullptr) return found;
  return NotFound("%s: missing tensor '%s'", source.path.c_str(),
                  FileSpelling(source, released_name).c_str());
}

Result<std::vector<StoredMatrix>> FindMatrices(const ModelSource& source,
                                               const TensorSlot& slot) {
  if (slot.role == TensorRole::kExperts) return FindExperts(source, slot);
  ECPHORY_ASSIGN_OR_RETURN(
      StoredMatrix matrix,
      FindMatrix(source, slot.name, slot.shape[0], slot.shape[1]));
  return std::vector<StoredMatrix>{matrix};
}

Result<const TensorInfo*> FindVector(const ModelSource& source,
                                     const TensorSlot& slot) {
  if (slot.optional && source.Find(slot.name) == nullptr) {
    return static_cast<const TensorInfo*>(nullptr);
  }
  ECPHORY_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                           RequireTensor(source, slot.name));
  const bool plain = tensor->dtype == DType::kF32 ||
                     tensor->dtype == DType::kF16 ||
                     tensor->dtype == DType::kBF16;
  if (!plain) {
    return WrongTensor(source, *tensor,
                       "F32, F16 or BF16 " + ShapeString(slot.shape));
  }
  ECPHORY_RETURN_IF_ERROR(CheckShape(source, *tensor, slot.shape));
  return tensor;
}

void CopyToFloat(DType dtype, const uint8_t* in, size_t count, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof(half));
    out[i] = dtype == DType::kBF16 ? BF16ToF32(half) : F16ToF32(half);
  }
}

}  // namespace ecphory
