// What `ecphory run` reports at its end.
#pragma once

#include <optional>
#include <string>

#include "ecphory/device_plan.h"
#include "ecphory/generate.h"
#include "memory.h"
#include "output.h"

namespace ecphory::cli {

// The kernel keeps a peak of all resident memory, but none of the part that is
// ours alone: that one is sampled, after loading and along the prompt, when
// everything the engine allocates stands.
class MemoryWatch {
 public:
  void Sample();
  // Now, with the largest anonymous part of all samples.
  MemoryUse Use() const;

 private:
  uint64_t anonymous_peak_ = 0;
};

struct RunFacts {
  const Model* model = nullptr;
  Prefill prefill = Prefill::kSkip;
  GenerateResult result;
  MemoryWatch memory;
  MemoryPlan plan;
  std::optional<DevicePlan> device;  // where the model is on one
  double start_to_first_token = 0;
  uint64_t seed = 0;

  std::string ToLine() const;
  Json ToJson() const;
};

// How the model's Engram rows are read.
Json EngramIoJson(const Model& model);

}  // namespace ecphory::cli
