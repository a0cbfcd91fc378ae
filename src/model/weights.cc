#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "model/device_weights.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"
#include "model/weight_mapping.h"
#include "model/weight_reading.h"
#include "tensor/scale_check.h"

namespace ecphory {

namespace {

// Scales are read at load to refuse broken ones early. The released experts
// hold 17 GB of them, which would be most of the loading time: beyond this many
// bytes (well under a second of reading) the rest stays unread.
constexpr uint64_t kMaxScaleBytesChecked = 256ull << 20;

// Scales inside rows are checked likewise, but reading them reads the tensor:
// so many bytes of tensors (20 ms from the page cache), those of small models.
constexpr uint64_t kMaxBlockBytesChecked = 64ull << 20;

// A slot and where its parts are stored.
struct FoundSlot {
  TensorSlot slot;
  const TensorInfo* vector = nullptr;  // kVector; null when absent
  std::vector<StoredMatrix> matrices;  // others
};

Result<std::vector<FoundSlot>> FindAll(const ModelSource& source,
                                       std::vector<TensorSlot> slots) {
  std::vector<FoundSlot> found;
  found.reserve(slots.size());
  for (TensorSlot& slot : slots) {
    FoundSlot& entry = found.emplace_back();
    entry.slot = std::move(slot);
    if (entry.slot.role == TensorRole::kVector) {
      ECPHORY_ASSIGN_OR_RETURN(entry.vector, FindVector(source, entry.slot));
    } else {
      ECPHORY_ASSIGN_OR_RETURN(entry.matrices,
                               FindMatrices(source, entry.slot));
    }
  }
  return found;
}

std::vector<const TensorInfo*> UsedTensors(
    const std::vector<FoundSlot>& found) {
  std::vector<const TensorInfo*> used;
  for (const FoundSlot& entry : found) {
    if (entry.vector) used.push_back(entry.vector);
    for (const StoredMatrix& matrix : entry.matrices) {
      used.push_back(matrix.data);
      if (matrix.scales) used.push_back(matrix.scales);
    }
  }
  return used;
}

// What one matrix, or one vector, is made of in the files: rows, in the order
// in which threads will share them.
std::vector<TensorPiece> PiecesOf(const std::vector<FoundSlot>& found) {
  std::vector<TensorPiece> pieces;
  for (const FoundSlot& entry : found) {
    if (entry.vector != nullptr) {
      pieces.push_back({entry.vector, 0, entry.vector->bytes, 1});
    }
    for (const StoredMatrix& matrix : entry.matrices) {
      Matrix view;
      view.format = matrix.format;
      view.cols = matrix.cols;
      pieces.push_back({matrix.data, matrix.data_offset,
                        matrix.rows * view.row_bytes(), matrix.rows});
      if (matrix.scales == nullptr) continue;
      pieces.push_back(
          {matrix.scales, 0, matrix.scales->bytes, matrix.scales->shape[0]});
    }
  }
  return pieces;
}

class Binder {
 public:
  // `copy`: the device's; null on a host device.
  Binder(const ModelSource& source, const WeightMapping& mapping,
         const DeviceWeights* copy, Device& device)
      : source_(source), mapping_(mapping), copy_(copy), device_(device) {}

  Status Bind(const FoundSlot& found) {
    const TensorSlot& slot = found.slot;
    if (slot.role == TensorRole::kVector) {
      return BindVector(found.vector, slot.vector);
    }
    if (slot.role != TensorRole::kExperts) {
      return BindMatrix(found.matrices[0], slot.matrix);
    }
    slot.experts->resize(found.matrices.size());
    for (size_t e = 0; e < found.matrices.size(); ++e) {
      ECPHORY_RETURN_IF_ERROR(BindMatrix(
          found.matrices[e], &((*slot.experts)[e].*slot.expert_part)));
    }
    return {};
  }

  uint64_t resident_bytes() const { return resident_bytes_; }

 private:
  Status BindVector(const TensorInfo* tensor, DeviceArray<float>* out) {
    if (tensor == nullptr) return {};
    std::vector<float> values(tensor->values());
    CopyToFloat(tensor->dtype, mapping_.Bytes(*tensor), values.size(),
                values.data());
    const auto is_nan = [](float x) { return std::isnan(x); };
    const auto nan = std::find_if(values.begin(), values.end(), is_nan);
    if (nan != values.end()) {
      return Corrupt(
          "%s: value %td is NaN, expected numbers; fetch the file again",
          TensorLabel(source_, *tensor).c_str(), nan - values.begin());
    }
    resident_bytes_ += values.size() * sizeof(float);
    ECPHORY_ASSIGN_OR_RETURN(*out, DeviceArray<float>::Of(device_, values));
    return {};
  }

  Status BindMatrix(const StoredMatrix& stored, Matrix* out) {
    out->format = stored.format;
    out->rows = stored.rows;
    out->cols = stored.cols;
    out->data = mapping_.Bytes(*stored.data) + stored.data_offset;
    if (stored.scales == nullptr) {
      ECPHORY_RETURN_IF_ERROR(CheckBlocks(stored, *out));
    } else {
      out->scales = mapping_.Bytes(*stored.scales);
      ECPHORY_RETURN_IF_ERROR(CheckScales(*stored.scales, out->scales));
    }
    if (copy_ != nullptr) copy_->Place(stored, out);
    return {};
  }

  Status CheckScales(const TensorInfo& tensor, const uint8_t* scales) {
    if (tensor.bytes > kMaxScaleBytesChecked - scale_bytes_checked_) return {};
    scale_bytes_checked_ += tensor.bytes;
    const void* nan = std::memchr(scales, 255, tensor.bytes);
    if (nan == nullptr) return {};
    const uint64_t at =
        static_cast<uint64_t>(static_cast<const uint8_t*>(nan) - scales);
    const uint64_t cols = tensor.shape[1];
    return Corrupt("%s: scale [%llu, %llu] is 255 (NaN), expected 0..254",
                   TensorLabel(source_, tensor).c_str(),
                   static_cast<unsigned long long>(at / cols),
                   static_cast<unsigned long long>(at % cols));
  }

  Status CheckBlocks(const StoredMatrix& stored, const Matrix& matrix) {
    if (matrix.format == WeightFormat::kF32 ||
        matrix.format == WeightFormat::kF16 ||
        matrix.format == WeightFormat::kBF16) {
      return {};
    }
    const uint64_t bytes = matrix.rows * matrix.row_bytes();
    if (bytes > kMaxBlockBytesChecked - block_bytes_checked_) return {};
    block_bytes_checked_ += bytes;
    const std::optional<size_t> row = FirstRowWithBrokenScale(matrix);
    if (!row) return {};
    return Corrupt(
        "%s: row %llu has an infinite or NaN scale, expected numbers; fetch "
        "the "
        "file again",
        TensorLabel(source_, *stored.data).c_str(),
        static_cast<unsigned long long>(
            stored.data_offset / matrix.row_bytes() + *row));
  }

  const ModelSource& source_;
  const WeightMapping& mapping_;
  const DeviceWeights* const copy_;
  Device& device_;
  uint64_t resident_bytes_ = 0;
  uint64_t scale_bytes_checked_ = 0;
  uint64_t block_bytes_checked_ = 0;
};

// The views of a layer's experts, where the device reads them.
Status SendExperts(Device& device, Weights* weights) {
  for (LayerWeights& layer : weights->layers) {
    MoeWeights& moe = layer.moe;
    ECPHORY_ASSIGN_OR_RETURN(moe.device_experts,
                             DeviceArray<Expert>::Of(device, moe.experts));
    ECPHORY_ASSIGN_OR_RETURN(moe.device_shared,
                             DeviceArray<Expert>::Of(device, {&moe.shared, 1}));
  }
  return {};
}

}  // namespace

Result<Weights> LoadWeights(const ModelSource& source,
                            const WeightLoading& loading) {
  Weights weights;
  ECPHORY_ASSIGN_OR_RETURN(
      const std::vector<FoundSlot> found,
      FindAll(source, MakeTensorSlots(source.config, &weights)));
  const std::vector<const TensorInfo*> used = UsedTensors(found);
  Device& device = *loading.device;
  const bool copy = loading.copy && device.is_host();
  ECPHORY_ASSIGN_OR_RETURN(const WeightMapping mapping,
                           copy ? WeightMapping::Reserve(source, used)
                                : WeightMapping::Map(source, used));
  if (copy) {
    ECPHORY_RETURN_IF_ERROR(ReadTensors(source, loading.open, PiecesOf(found),
                                        mapping, loading.progress,
                                        *loading.pool));
  }
  DeviceWeights device_copy;
  if (!device.is_host()) {
    ECPHORY_ASSIGN_OR_RETURN(
        device_copy,
        DeviceWeights::Copy(source, used, mapping, loading.progress,
                            *loading.pool, device));
  }
  Binder binder(source, mapping, device.is_host() ? nullptr : &device_copy,
                device);
  for (const FoundSlot& entry : found) {
    ECPHORY_RETURN_IF_ERROR(binder.Bind(entry));
  }
  if (device.is_host()) {
    weights.mappings = mapping.mappings();
    weights.copies = mapping.copies();
  } else {
    ECPHORY_RETURN_IF_ERROR(SendExperts(device, &weights));
    weights.device_copy = device_copy.TakeMemory();
  }
  weights.mapped_bytes =
      device.is_host() ? mapping.bytes() : weights.device_copy.size();
  weights.resident_bytes = binder.resident_bytes();
  return weights;
}

}  // namespace ecphory
