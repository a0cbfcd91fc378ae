#include <string>

#include "ecphory/version.h"
#include "ops/cpu_instructions.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace ecphory {

std::string Backends() {
  return std::string(BuiltWithCuda() ? "cuda, " : "") + CpuOps().name + " (" +
         CpuInstructions() + "), " + RefOps().name;
}

}  // namespace ecphory
