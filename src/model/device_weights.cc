#include "model/device_weights.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/ceil_div.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"
#include "tensor/mxfp4_rows.h"

namespace ecphory {

namespace {

// What kernels may want a tensor to begin at.
constexpr uint64_t kAlignment = 256;
constexpr uint64_t kPieceBytes = uint64_t{64} << 20;
constexpr uint64_t kCopyBytes = uint64_t{1} << 20;  // of one thread, at least

std::set<const TensorInfo*> Distinct(
    const std::vector<const TensorInfo*>& used) {
  return {used.begin(), used.end()};
}

uint64_t Padded(uint64_t bytes) {
  return CeilDiv(bytes, kAlignment) * kAlignment;
}

// Two pieces of shared memory on their way to the device.
class Ferry {
 public:
  static Result<Ferry> Create(Device& device) {
    Ferry ferry;
    ECPHORY_ASSIGN_OR_RETURN(ferry.queue_, device.NewQueue());
    for (DeviceArray<uint8_t>& piece : ferry.pieces_) {
      ECPHORY_ASSIGN_OR_RETURN(
          piece, DeviceArray<uint8_t>::Allocate(device, kPieceBytes,
                                                MemoryKind::kShared));
    }
    return ferry;
  }

  Status Send(const uint8_t* from, uint64_t bytes, uint8_t* to,
              ThreadPool& pool) {
    const Queue::Scope scope(*queue_);
    for (uint64_t done = 0; done < bytes; done += kPieceBytes) {
      const uint64_t count = std::min(kPieceBytes, bytes - done);
      uint8_t* const piece = pieces_[turn_].data();
      pool.ParallelFor(
          count, kCopyBytes, [&](size_t begin, size_t end, size_t) {
            std::memcpy(piece + begin, from + done + begin, end - begin);
          });
      // The other piece is there, and may be filled next.
      ECPHORY_RETURN_IF_ERROR(queue_->Finish());
      queue_->Send(to + done, piece, count);
      turn_ ^= 1;
    }
    return {};
  }

  // Blocks of MXFP4: their codes, and behind those of all their scales.
  Status SendMxfp4(const uint8_t* from, uint64_t bytes, uint8_t* to,
                   ThreadPool& pool) {
    constexpr uint64_t kPieceBlocks = kPieceBytes / kMxfp4BlockBytes;
    constexpr uint64_t kThreadBlocks = kCopyBytes / kMxfp4BlockBytes;
    const Queue::Scope scope(*queue_);
    const uint64_t blocks = bytes / kMxfp4BlockBytes;
    uint8_t* const scales_to = to + blocks * kMxfp4CodeBytes;
    for (uint64_t done = 0; done < blocks; done += kPieceBlocks) {
      const uint64_t count = std::min(kPieceBlocks, blocks - done);
      uint8_t* const codes = pieces_[turn_].data();
      uint8_t* const scales = codes + count * kMxfp4CodeBytes;
      pool.ParallelFor(
          count, kThreadBlocks, [&](size_t begin, size_t end, size_t) {
            SplitMxfp4(from + (done + begin) * kMxfp4BlockBytes, end - begin,
                       codes + begin * kMxfp4CodeBytes, scales + begin);
          });
      ECPHORY_RETURN_IF_ERROR(queue_->Finish());
      queue_->Send(to + done * kMxfp4CodeBytes, codes, count * kMxfp4CodeBytes);
      queue_->Send(scales_to + done, scales, count);
      turn_ ^= 1;
    }
    return {};
  }
  Status Finish() {
    const Queue::Scope scope(*queue_);
    return queue_->Finish();
  }

 private:
  DeviceArray<uint8_t> pieces_[2];
  std::unique_ptr<Queue> queue_;  // after the pieces: it waits for them
  size_t turn_ = 0;
};

}  // namespace

uint64_t DeviceWeights::Bytes(const std::vector<const TensorInfo*>& used) {
  uint64_t bytes = 0;
  for (const TensorInfo* tensor : Distinct(used))
    bytes += Padded(tensor->bytes);
  return bytes;
}

Result<DeviceWeights> DeviceWeights::Copy(
    const ModelSource& source, const std::vector<const TensorInfo*>& used,
    const WeightMapping& mapping,
    const std::function<bool(uint64_t, uint64_t)>& progress, ThreadPool& pool,
    Device& device) {
  DeviceWeights weights;
  const uint64_t total = Bytes(used);
  Result<DeviceArray<uint8_t>> memory =
      DeviceArray<uint8_t>::Allocate(device, total);
  if (!memory.ok()) return memory.status().WithContext("weights");
  weights.memory_ = std::move(memory).value();
  ECPHORY_ASSIGN_OR_RETURN(Ferry ferry, Ferry::Create(device));
  uint64_t offset = 0;
  for (const TensorInfo* tensor : Distinct(used)) {
    weights.offsets_[tensor] = offset;
    const auto send =
        tensor->dtype == DType::kMXFP4 ? &Ferry::SendMxfp4 : &Ferry::Send;
    ECPHORY_RETURN_IF_ERROR((ferry.*send)(mapping.Bytes(*tensor), tensor->bytes,
                                          weights.memory_.data() + offset,
                                          pool));
    offset += Padded(tensor->bytes);
    if (progress && !progress(offset, total)) {
      return Cancelled("%s: stopped after copying %llu of %llu bytes",
                       source.path.c_str(),
                       static_cast<unsigned long long>(offset),
                       static_cast<unsigned long long>(total));
    }
  }
  ECPHORY_RETURN_IF_ERROR(ferry.Finish());
  return weights;
}

void DeviceWeights::Place(const StoredMatrix& stored, Matrix* matrix) const {
  const uint8_t* const data = Find(*stored.data);
  matrix->format = DeviceFormat(stored.format);
  if (stored.format == WeightFormat::kMXFP4) {
    const uint64_t block = stored.data_offset / kMxfp4BlockBytes;
    const uint64_t blocks = stored.data->bytes / kMxfp4BlockBytes;
    matrix->data = data + block * kMxfp4CodeBytes;
    matrix->scales = data + blocks * kMxfp4CodeBytes + block;
    return;
  }
  matrix->data = data + stored.data_offset;
  if (stored.scales != nullptr) matrix->scales = Find(*stored.scales);
}

// Packed tensors as DeviceWeights copies them, vectors as fp32, and the views
// of experts.
Result<uint64_t> DeviceWeightBytes(const ModelSource& source) {
  Weights unfilled;
  std::vector<const TensorInfo*> used;
  uint64_t vectors = 0;
  for (const TensorSlot& slot : MakeTensorSlots(source.config, &unfilled)) {
    if (slot.role == TensorRole::kVector) {
      ECPHORY_ASSIGN_OR_RETURN(const TensorInfo* const vector,
                               FindVector(source, slot));
      if (vector == nullptr) continue;
      used.push_back(vector);
      vectors += vector->values() * sizeof(float);
      continue;
    }
    ECPHORY_ASSIGN_OR_RETURN(const std::vector<StoredMatrix> matrices,
                             FindMatrices(source, slot));
    for (const StoredMatrix& matrix : matrices) {
      used.push_back(matrix.data);
      if (matrix.scales != nullptr) used.push_back(matrix.scales);
    }
  }
  const ModelConfig& c = source.config;
  const uint64_t experts = uint64_t{c.n_layers} * (c.n_experts + 1);
  return DeviceWeights::Bytes(used) + vectors + experts * sizeof(Expert);
}

}  // namespace ecphory
