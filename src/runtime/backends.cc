#include <string>

#include "ecphory/version.h"
#include "ops/ops.h"

namespace ecphory {

std::string Backends() {
  return std::string(CpuOps().name) + " (" + CpuTargetName() + "), " +
         RefOps().name;
}

}  // namespace ecphory
