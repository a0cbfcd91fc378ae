#include "ecphory/device_plan.h"

#include "engram/hasher.h"
#include "model/device_weights.h"
#include "model/forward_scratch.h"
#include "model/hyper_connections.h"
#include "model/memory_plan.h"
#include "model/model_impl.h"

namespace ecphory {

namespace {

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
  plan.taken = memory.taken;
  ECPHORY_ASSIGN_OR_RETURN(plan.weights, DeviceWeightBytes(source));
  if (planned.engram_place == EngramPlace::kGpu) {
    plan.engram_tables = planned.engram_table_bytes;
  }
  plan.state = host.state_context -
               (config.engram.enabled() ? sizeof(engram::History) : 0);
  // And the logits of every other pass.
  plan.scratch = DeviceScratchBytes(config, options, sequences) +
                 uint64_t{sequences} * config.vocab_size * sizeof(float);
  ECPHORY_ASSIGN_OR_RETURN(
      plan.operators,
      device.ScratchBytes(ScratchShapeOf(config, options, planned, sequences)));
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
