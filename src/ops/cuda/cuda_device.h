// An NVIDIA GPU as a device (ops/device.h). Free of CUDA headers.
#pragma once

#include <memory>

#include "ecphory/status.h"
#include "ops/device.h"

namespace ecphory {

// kInvalidArgument for a number that does not exist; kUnsupported where there
// is no driver, one too old, no GPU, or one that this build has no code for.
Result<std::shared_ptr<Device>> OpenCudaDevice(int ordinal);

}  // namespace ecphory
