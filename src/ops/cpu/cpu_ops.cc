#include "ops/ops.h"

namespace ecphory {

// Every entry is the definition's.
const Ops& CpuOps() {
  static const Ops ops = [] {
    Ops copy = RefOps();
    copy.name = "cpu";
    return copy;
  }();
  return ops;
}

const char* CpuTargetName() { return "SCALAR"; }

}  // namespace ecphory
