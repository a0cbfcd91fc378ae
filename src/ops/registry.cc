#include <cstring>

#include "ops/ops.h"

namespace ecphory {

Result<const Ops*> FindOps(const char* name) {
  if (std::strcmp(name, "ref") == 0) return &RefOps();
  if (std::strcmp(name, "cpu") == 0) return &CpuOps();
  if (std::strcmp(name, "auto") == 0) return &CpuOps();
  return InvalidArgument(
      "backend \"%.32s\" does not exist: use auto, cpu or ref", name);
}

}  // namespace ecphory
