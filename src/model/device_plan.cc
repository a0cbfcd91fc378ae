#include "ecphory/device_plan.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engram/hasher.h"
#include "model/device_weights.h"
#include "model/forward_scratch.h"
#include "model/hyper_connections.h"
#include "model/memory_plan.h"
#include "model/model_impl.h"
#include "model/stored_tensor.h"
#include "model/tensor_slots.h"

namespace ecphory {

namespace {

// Packed tensors as DeviceWeights copies them, vectors as fp32, and the views
// of experts.
Result<uint64_t> WeightBytes(const ModelSource& source) {
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

Result<DevicePlan> Plan(const ModelSource& source,
                        const SessionOptions& session, uint32_t sequences,
                        const PlannedModel& planned, const Device& device) {
  if (device.is_host()) {
    return InvalidArgument("%s computes in the memory of the process",
                           device.name().c_str());
  }
  const ModelConfig& config = source.config;
  const MemoryPlan host = PlanMemory(config, session, planned, sequences);
  SessionOptions options = session;
  options.context = host.context;
  options.chunk = host.chunk;
  DevicePlan plan;
  plan.device = device.name();
  plan.context = host.context;
  plan.chunk = host.chunk;
  plan.sequences = sequences;
  ECPHORY_ASSIGN_OR_RETURN(const DeviceMemory memory, device.memory());
  plan.total = memory.total;
  plan.in_use_before = memory.in_use_at_first;
  plan.in_use = memory.total - memory.free;
  ECPHORY_ASSIGN_OR_RETURN(plan.weights, WeightBytes(source));
  plan.state = host.state_context -
               (config.engram.enabled() ? sizeof(engram::History) : 0);
  plan.scratch = DeviceScratchBytes(config, options, sequences);
  plan.operators =
      device.ScratchBytes(ScratchShapeOf(config, options, planned, sequences));
  return plan;
}

}  // namespace

Result<DevicePlan> PlanDevice(const std::string& path, uint32_t context,
                              uint32_t chunk, const ModelOptions& options,
                              uint32_t sequences) {
  ECPHORY_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device,
                           OpenDevice(options.backend));
  ECPHORY_ASSIGN_OR_RETURN(const ModelSource source, OpenModelSource(path));
  ECPHORY_ASSIGN_OR_RETURN(const PlannedModel planned,
                           PlanModel(source, options));
  SessionOptions session;
  session.context = context;
  if (chunk != 0) session.chunk = chunk;
  return Plan(source, session, sequences, planned, *device);
}

Result<DevicePlan> PlanDevice(const Model& model, const SessionOptions& session,
                              uint32_t sequences) {
  const Model::Impl& impl = model.impl();
  return Plan(impl.source, session, sequences, impl.planned, *impl.device);
}

}  // namespace ecphory
