// A model's facts as JSON: the same as the text, in full precision.
#pragma once

#include "ecphory/device_plan.h"
#include "ecphory/model.h"
#include "output.h"

namespace ecphory::cli {

Json InfoJson(const ModelInfo& info, bool list_tensors);
Json DevicePlanJson(const DevicePlan& plan);

}  // namespace ecphory::cli
