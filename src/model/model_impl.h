// What stands behind ecphory::Model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/model.h"
#include "engram/hasher.h"
#include "engram/store.h"
#include "model/compute_threads.h"
#include "model/forward.h"
#include "model/planned_model.h"
#include "model/resident_tables.h"
#include "model/source.h"
#include "model/weights.h"
#include "ops/device_array.h"

namespace ecphory {

struct Model::Impl {
  std::shared_ptr<Device> device;  // first: the memory below is its
  ModelSource source;
  ModelInfo info;
  Weights weights;
  std::optional<engram::Hasher> hasher;
  std::unique_ptr<engram::Store> store;
  std::unique_ptr<ResidentTables> tables;  // of a device that reads them
  EngramIoFacts engram_io;
  PlannedModel planned;
  ComputeThreads threads;
  std::unique_ptr<ThreadPool> pool;
  DeviceArray<float> inv_freq, inv_freq_compress;
  ForwardModel forward;  // points into the members above
};

// 1 for each image position: those of `mask` ([tokens], or empty) and every
// image token.
std::vector<uint8_t> ImagePositions(const ModelConfig& config,
                                    std::span<const int32_t> tokens,
                                    std::span<const uint8_t> mask);

}  // namespace ecphory
