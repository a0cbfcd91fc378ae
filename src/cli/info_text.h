// A model's facts as a page of text.
#pragma once

#include <string>

#include "ecphory/device_plan.h"
#include "ecphory/model.h"

namespace ecphory::cli {

std::string InfoText(const ModelInfo& info, bool list_tensors);
std::string DevicePlanText(const DevicePlan& plan);

}  // namespace ecphory::cli
