// Weights in the memory of a device that does not compute on the host's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/status.h"
#include "model/source.h"
#include "model/stored_tensor.h"
#include "model/weight_mapping.h"
#include "ops/device_array.h"

namespace ecphory {

// Bytes of all weights of such a model in a device's memory.
Result<uint64_t> DeviceWeightBytes(const ModelSource& source);

// A copy of every used tensor's bytes, each at a multiple of 256 bytes; of
// MXFP4 tensors all codes and then all scales (tensor/mxfp4_rows.h).
class DeviceWeights {
 public:
  // Bytes of the copy.
  static uint64_t Bytes(const std::vector<const TensorInfo*>& used);

  // Copies through two pieces of shared memory, filled by `pool` in turn while
  // the other is on its way. `progress` may be empty; when it returns false the
  // result is kCancelled. kResourceExhausted names the bytes.
  static Result<DeviceWeights> Copy(
      const ModelSource& source, const std::vector<const TensorInfo*>& used,
      const WeightMapping& mapping,
      const std::function<bool(uint64_t, uint64_t)>& progress, ThreadPool& pool,
      Device& device);

  // A matrix whose tensors were in `used`: its format there, and where its data
  // and scales are.
  void Place(const StoredMatrix& stored, Matrix* matrix) const;
  // The copy itself, into which matrices keep pointing.
  DeviceArray<uint8_t> TakeMemory() { return std::move(memory_); }

 private:
  const uint8_t* Find(const TensorInfo& tensor) const {
    return memory_.data() + offsets_.at(&tensor);
  }

  DeviceArray<uint8_t> memory_;
  std::map<const TensorInfo*, uint64_t> offsets_;
};

}  // namespace ecphory
