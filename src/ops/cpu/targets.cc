#include "base/highway_config.h"
// Order matters: the configuration above selects what this declares.
#include "hwy/highway.h"
#include "ops/cpu/testing.h"
#include "ops/ops.h"

namespace ecphory {

std::vector<int64_t> CpuTargetsForTest() {
  // Asked for once: a forced target hides the others.
  static const std::vector<int64_t> targets =
      hwy::SupportedAndGeneratedTargets();
  return targets;
}

const char* CpuTargetNameForTest(int64_t target) {
  return hwy::TargetName(target);
}

void SetCpuTargetForTest(int64_t target) {
  CpuTargetsForTest();
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

const char* CpuTargetName() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);  // the lowest bit is the best
}

}  // namespace ecphory
