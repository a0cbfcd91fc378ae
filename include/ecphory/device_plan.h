// What a model will take of a GPU's memory, before it is opened.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/export.h"
#include "ecphory/model.h"
#include "ecphory/status.h"

namespace ecphory {

// Bytes.
struct DevicePlan {
  std::string device;  // "cuda:0 (NVIDIA H200)"
  uint64_t total = 0;  // that it has
  // When the device was opened (the CUDA context, and other programs), and now.
  uint64_t in_use_before = 0;
  uint64_t in_use = 0;
  // Of it, what this program has asked for. The driver takes more: the code of
  // kernels, recorded steps, and whole pages.
  uint64_t taken = 0;
  uint64_t weights = 0;  // packed as in the file, and small tensors as fp32
  uint64_t engram_tables = 0;  // ModelOptions::engram_place "gpu"
  // Of a session, or of a batch (ecphory/batch.h) with all its sessions.
  uint64_t state = 0;      // caches of a sequence for `context` tokens
  uint64_t scratch = 0;    // activations of one chunk
  uint64_t operators = 0;  // what operators keep
  uint32_t context = 0;
  uint32_t chunk = 0;
  uint32_t sequences = 1;
  uint64_t Session() const { return sequences * state + scratch + operators; }
  uint64_t Total() const { return weights + engram_tables + Session(); }
  bool fits() const { return total - in_use_before >= Total(); }
};

// Reads headers only, and asks the device that options.backend names; null of
// `context` and `chunk` are the session's defaults. kInvalidArgument for a
// backend that computes in the process's own memory (InspectModel plans it).
ECPHORY_EXPORT Result<DevicePlan> PlanDevice(const std::string& path,
                                             uint32_t context, uint32_t chunk,
                                             const ModelOptions& options,
                                             uint32_t sequences = 1);
// The same for an open model: `in_use` counts it, and its sessions.
ECPHORY_EXPORT Result<DevicePlan> PlanDevice(const Model& model,
                                             const SessionOptions& session,
                                             uint32_t sequences = 1);

}  // namespace ecphory
