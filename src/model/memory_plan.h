// What a session will take, from the configuration alone.
#pragma once

#include <cstdint>
#include <string>

#include "ecphory/config.h"
#include "ecphory/model.h"
#include "ecphory/session.h"
#include "model/planned_model.h"
#include "ops/device.h"

namespace ecphory {

// Compressed entries and index keys of one token, over all KV sources, as
// stored with the model's rounding steps on. Exact: a source of ratio 2 counts
// half an entry a token (890 at released sizes).
double StateBytesPerToken(const ModelConfig& config);

// The part of the caches that does not grow with the context: window rings,
// open groups, the n-gram history. `rounding`: as SessionOptions has it.
uint64_t FixedStateBytes(const ModelConfig& config, uint32_t chunk,
                         bool rounding = true);

// All caches at `context` tokens.
uint64_t StateBytes(const ModelConfig& config, uint32_t context, uint32_t chunk,
                    bool rounding = true);

// Buffers of forward passes over `chunk` tokens, and what sequences keep beside
// their caches.
uint64_t ScratchBytes(const ModelConfig& config, const SessionOptions& options,
                      uint32_t sequences = 1);

// Of that, what operators reach: where there is another device than the host,
// it lies there.
uint64_t DeviceScratchBytes(const ModelConfig& config,
                            const SessionOptions& options,
                            uint32_t sequences = 1);

// What the operators' own working memory depends on.
ScratchShape ScratchShapeOf(const ModelConfig& config,
                            const SessionOptions& options,
                            const PlannedModel& model, uint32_t sequences = 1);

// What a session of such a model takes, or a batch of so many sequences, what
// operators keep included; the weights' fields stay 0. Context 0 means the
// session's default.
MemoryPlan PlanMemory(const ModelConfig& config, const SessionOptions& options,
                      const PlannedModel& model, uint32_t sequences = 1);

// Takes out what lies in the memory of another device than the host, weights
// included (ecphory/device_plan.h plans it). Engram rows stay as they are
// stored.
void LeaveToDevice(const ModelConfig& config, SessionOptions options,
                   const PlannedModel& model, MemoryPlan* plan);

// kResourceExhausted unless the process can get so many bytes: "WHAT of N bytes
// ..., M are to be had; ADVICE". Where that is not known everything fits.
Status CheckFits(const std::string& what, uint64_t bytes,
                 const std::string& advice);
// The same, of a device's memory.
Status CheckFits(const std::string& what, uint64_t bytes, const Device& device,
                 const std::string& advice);

}  // namespace ecphory
