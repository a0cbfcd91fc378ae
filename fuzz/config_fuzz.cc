// config.json from hostile bytes; an accepted configuration must answer for
// every layer.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ecphory/config.h"
#include "model/memory_plan.h"
#include "model/tensor_slots.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = ecphory::ParseConfigJson(text, "fuzz");
  if (!config.ok()) {
    if (config.status().message().rfind("fuzz: ", 0) != 0) std::abort();
    return 0;
  }
  for (uint32_t layer = 0; layer < config->n_layers; ++layer) {
    const bool compressed = config->compress_ratios[layer] > 0;
    if (compressed != (config->KvSourceOf(layer) >= 0)) std::abort();
    if (compressed != (config->IndexSourceOf(layer) >= 0)) std::abort();
  }
  ecphory::Weights weights;
  for (const auto& slot : ecphory::MakeTensorSlots(*config, &weights)) {
    if (slot.ValueCount() == 0) std::abort();
  }
  if (ecphory::PlanMemory(*config, {}, {}).state_context == 0) std::abort();
  return 0;
}
