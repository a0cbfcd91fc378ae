#include "model/device_weights.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/ceil_div.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"

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
    ECPHORY_RETURN_IF_ERROR(ferry.Send(mapping.Bytes(*tensor), tensor->bytes,
                                       weights.memory_.data() + offset, pool));
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
