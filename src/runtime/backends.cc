#include <string>

#include "ecphory/version.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace ecphory {

std::string Backends() {
  return std::string(BuiltWithCuda() ? "cuda, " : "") + CpuOps().name + " (" +
         CpuTargetName() + "), " + RefOps().name;
}

}  // namespace ecphory
